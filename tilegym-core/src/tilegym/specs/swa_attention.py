"""swa_attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Sample
from tilegym.op import dispatch
from tilegym.specs import _attention
from tilegym.specs._attention import Form, Mask

_OP = "swa_attention"


@dispatch("swa_attention")
def swa_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window_size: int,
    scaling: float | None = None,
    is_causal: bool = True,
    **kwargs: Any,
) -> Tensor:
    """Sliding-window attention: `fmha` where query i sees only the keys j > i - window_size.

    Args:
        q: (B, H, S, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk.
        v: as k.
        window_size: how many keys query i sees up to its own position, which counts; not positive: no window.
        scaling: the factor of q @ k.T; None: 1 / sqrt(D).
        is_causal: query i sees no key j > i.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, S, D), as from `fmha`; 0 where a query sees no key.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.

    Gradient: q, k, v.

    Source: Beltagy et al., "Longformer", 2020; Jiang et al., "Mistral 7B", 2023.
    """
    raise NotImplementedError


def canonical(
    q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float | None = None, is_causal: bool = True
) -> tuple[Tensor, Tensor, Tensor, int, float, bool]:
    _attention.check_qkv(_OP, q, k, v)
    window = _attention.checked_window(_OP, "window_size", window_size)
    _attention.check_bool(_OP, "is_causal", is_causal)
    return q, k, v, window, _attention.checked_scaling(_OP, scaling, q.shape[3]), is_causal


def form(q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float, is_causal: bool) -> Form:
    mask = Mask(left=window_size - 1 if window_size else None, right=0 if is_causal else None)
    return (q, k, v, scaling, mask), {}


def reference(q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float, is_causal: bool) -> Tensor:
    args, options = form(q, k, v, window_size, scaling, is_causal)
    return _attention.attend(*args, **options)[0]


def samples() -> Iterator[Sample]:
    case = _attention.case
    yield case("no-keys", (1, 2, 3, 8), (2, 0), window_size=2)
    yield case("odd", (2, 2, 5, 8), (2, 7), window_size=3, layout="strided")
    yield case("one-key", (1, 2, 70, 32), (1, 70), window_size=1)
    yield case("queries-without-keys", (1, 2, 90, 32), (2, 40), window_size=33)
    yield case("future", (1, 2, 60, 48), (2, 100), window_size=20, is_causal=False)
    yield case("longer-than-all", (1, 2, 40, 64), (2, 50), window_size=1000)


def benchmarks() -> Iterator[Sample]:
    case = _attention.case
    yield case("B1-H4/2-S256-D64-W64", (1, 4, 256, 64), (2, 256), window_size=64)
    yield case("B1-H4/2-S512-D64-W128", (1, 4, 512, 64), (2, 512), window_size=128)
    for length, window in [(8192, 1024), (32768, 4096)]:
        name = f"B1-H32/8-S{length}-D128-W{window}"
        yield case(name, (1, 32, length, 128), (8, length), window_size=window)


swa_attention.contract = _attention.contract_of(
    form, canonical=canonical, reference=reference, samples=samples, benchmarks=benchmarks
)
