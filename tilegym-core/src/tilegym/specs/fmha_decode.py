"""fmha_decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Contract, Sample
from tilegym.op import dispatch
from tilegym.specs import _attention, _decode
from tilegym.specs._attention import Mask

_OP = "fmha_decode"


@dispatch("fmha_decode")
def fmha_decode(
    q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None, kv_len_per_split: int | None = None, **kwargs: Any
) -> Tensor:
    """Attention of one query over all keys: `scaled_dot_product_attention(q, k, v, scale=sm_scale, enable_gqa=True)`.

    Args:
        q: (B, H, 1, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk. Head h of q meets head
            h // (H / Hk) of k and v.
        v: as k.
        sm_scale: the factor of q @ k.T; None: 1 / sqrt(D).
        kv_len_per_split: how many keys one block goes through, where a backend shares them out; None: it chooses.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, 1, D), q's dtype, contiguous. Scores and sums are float32; the weights are rounded to q's dtype before
        they are multiplied with v. Without keys it is 0.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError, ArgumentValueError: sm_scale is no number; kv_len_per_split is no int, or below 1.

    Source: Dao et al., "Flash-Decoding for long-context inference", 2023.
    """
    raise NotImplementedError


def canonical(
    q: Tensor, k: Tensor, v: Tensor, sm_scale: float | None, kv_len_per_split: int | None = None
) -> tuple[Tensor, Tensor, Tensor, float, int | None]:
    _attention.check_qkv(_OP, q, k, v)
    _decode.check_one_query(_OP, "q", q, 2)
    scale = _attention.checked_scaling(_OP, sm_scale, q.shape[3], name="sm_scale")
    return q, k, v, scale, _decode.checked_split(_OP, kv_len_per_split)


def reference(q: Tensor, k: Tensor, v: Tensor, sm_scale: float, kv_len_per_split: int | None) -> Tensor:
    return _attention.attend(q, k, v, sm_scale, Mask())[0]


def magnitude(q: Tensor, k: Tensor, v: Tensor, sm_scale: float, kv_len_per_split: int | None) -> Tensor:
    return _attention.magnitude(q, k, v, sm_scale, Mask())


def samples() -> Iterator[Sample]:
    def case(name: str, q: tuple[int, int, int], keys: tuple[int, int], **more: Any) -> Sample:
        batch, heads, size = q
        return _attention.case(name, (batch, heads, 1, size), keys, **{"sm_scale": None} | more)

    yield case("no-batch", (0, 2, 8), (1, 3))
    yield case("no-keys", (1, 2, 8), (2, 0))
    yield case("one", (1, 1, 8), (1, 1))
    yield case("odd-groups", (2, 6, 8), (2, 7))
    yield case("several-splits", (1, 5, 40), (1, 300), kv_len_per_split=100)
    yield case("more-splits-than-keys", (2, 2, 64), (2, 5), kv_len_per_split=1, layout="expanded")
    yield case("group-64", (1, 64, 72), (1, 130))
    yield case("size-256", (1, 2, 256), (1, 70), sm_scale=-0.5)
    yield case("large-scores", (1, 4, 64), (2, 200), fill="large")


def benchmarks() -> Iterator[Sample]:
    for batch, heads, kv_heads, keys in [(1, 8, 2, 1024), (1, 8, 2, 2048), (1, 32, 8, 8192)]:
        yield _benchmark(batch, heads, kv_heads, keys)
    for keys in (1024, 8192):
        yield _benchmark(16, 32, 8, keys)


def _benchmark(batch: int, heads: int, kv_heads: int, keys: int) -> Sample:
    name = f"B{batch}-H{heads}/{kv_heads}-S{keys}-D128"
    return _attention.case(name, (batch, heads, 1, 128), (kv_heads, keys), sm_scale=None)


fmha_decode.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=_attention.reduction,
    rounded_between=True,
    fake=lambda q, *_: _decode.fake(q),
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=_attention.bytes_moved,
    flops=lambda q, k, *_: _attention.flops(q, k, Mask()),
    sharding=_attention.ways,
    hints=_attention.HINTS,
)
