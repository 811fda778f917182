"""gemma_attention_decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Contract, Sample
from tilegym.op import dispatch
from tilegym.specs import _attention, _decode
from tilegym.specs._attention import Mask
from tilegym.specs.gemma_attention import checked_soft_cap

_OP = "gemma_attention_decode"


@dispatch("gemma_attention_decode")
def gemma_attention_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float | None = None,
    window_size: int = 0,
    soft_cap: float | None = None,
    **kwargs: Any,
) -> Tensor:
    """The last query of `gemma_attention`: it stands where the last key does, and sees the keys before it.

    Args:
        q: (B, H, 1, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk.
        v: as k.
        scaling: the factor of q @ k.T; None: 1 / sqrt(D).
        window_size: how far a key may be from the query, which then sees the last window_size + 1; not positive: all.
        soft_cap: scores stay between -soft_cap and soft_cap; None: they are not bounded.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, 1, D), q's dtype, contiguous. Computed as in `fmha_decode`; without keys it is 0.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: soft_cap is NaN or not positive.

    Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024.
    """
    raise NotImplementedError


def canonical(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float | None = None,
    window_size: int = 0,
    soft_cap: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, float, int, float | None]:
    _attention.check_qkv(_OP, q, k, v)
    _decode.check_one_query(_OP, "q", q, 2)
    window = _attention.checked_window(_OP, "window_size", window_size)
    scaling = _attention.checked_scaling(_OP, scaling, q.shape[3])
    return q, k, v, scaling, window, checked_soft_cap(_OP, soft_cap)


def _mask(k: Tensor, window_size: int) -> Mask:
    return Mask(left=window_size or None, right=0, start=k.shape[2] - 1)


def reference(q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None) -> Tensor:
    return _attention.attend(q, k, v, scaling, _mask(k, window_size), soft_cap=soft_cap)[0]


def magnitude(q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None) -> Tensor:
    return _attention.magnitude(q, k, v, scaling, _mask(k, window_size), soft_cap=soft_cap)


def _seen(k: Tensor, window_size: int) -> int:
    return min(k.shape[2], window_size + 1) if window_size else k.shape[2]


def bytes_moved(q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None) -> int:
    """Of q, the keys and values that are seen, and the output."""
    batch, kv_heads, _, size = k.shape
    return 2 * (q.numel() + batch * kv_heads * _seen(k, window_size) * size) * q.element_size()


def samples() -> Iterator[Sample]:
    def case(name: str, q: tuple[int, int, int], keys: tuple[int, int], **more: Any) -> Sample:
        batch, heads, size = q
        return _attention.case(name, (batch, heads, 1, size), keys, **more)

    yield case("no-keys", (1, 2, 8), (2, 0), window_size=2)
    yield case("odd", (2, 3, 8), (1, 7), window_size=1, soft_cap=1.5)
    yield case("window", (1, 4, 32), (2, 300), window_size=170, soft_cap=50.0)
    yield case("window-beyond-all", (1, 2, 24), (2, 40), window_size=100)
    yield case("all-at-the-cap", (1, 2, 64), (2, 140), soft_cap=0.5, fill="large")


def benchmarks() -> Iterator[Sample]:
    sizes = [(1, 8, 4, 256, 0), (1, 8, 4, 512, 0), (16, 16, 8, 8192, 1024), (16, 16, 8, 8192, 0)]
    for batch, heads, kv_heads, keys, window in sizes:
        name = f"B{batch}-H{heads}/{kv_heads}-S{keys}-D256{f'-W{window}' if window else ''}-capped"
        shape = (batch, heads, 1, 256)
        yield _attention.case(name, shape, (kv_heads, keys), window_size=window, soft_cap=50.0)


gemma_attention_decode.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=_attention.reduction,
    rounded_between=True,
    fake=lambda q, *_: _decode.fake(q),
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=lambda q, k, v, scaling, window_size, soft_cap: _attention.flops(q, k, _mask(k, window_size)),
    sharding=_attention.ways,
    hints=_attention.HINTS,
)
