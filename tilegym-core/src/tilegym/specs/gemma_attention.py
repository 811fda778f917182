"""gemma_attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Sample
from tilegym.errors import ArgumentTypeError, ArgumentValueError
from tilegym.op import dispatch
from tilegym.specs import _attention
from tilegym.specs._attention import Form, Mask

_OP = "gemma_attention"


@dispatch("gemma_attention")
def gemma_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float | None = None,
    window_size: int = 0,
    soft_cap: float | None = None,
    is_causal: bool = True,
    **kwargs: Any,
) -> Tensor:
    """`fmha` with a window to both sides, |i - j| <= window_size, and scores bounded by tanh before the mask.

        scores = q @ k.transpose(-1, -2) * scaling
        scores = soft_cap * torch.tanh(scores / soft_cap)

    Args:
        q: (B, H, S, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk.
        v: as k.
        scaling: the factor of q @ k.T; None: 1 / sqrt(D).
        window_size: how far a key may be from a query; not positive: no window.
        soft_cap: scores stay between -soft_cap and soft_cap; None: they are not bounded.
        is_causal: query i sees no key j > i.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, S, D), as from `fmha`; 0 where a query sees no key.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: soft_cap is NaN or not positive.

    Gradient: q, k, v.

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
    is_causal: bool = True,
) -> tuple[Tensor, Tensor, Tensor, float, int, float | None, bool]:
    _attention.check_qkv(_OP, q, k, v)
    window = _attention.checked_window(_OP, "window_size", window_size)
    _attention.check_bool(_OP, "is_causal", is_causal)
    scaling = _attention.checked_scaling(_OP, scaling, q.shape[3])
    return q, k, v, scaling, window, checked_soft_cap(_OP, soft_cap), is_causal


def checked_soft_cap(op: str, soft_cap: object) -> float | None:
    """A number over 0, or None. Without end it is none, too."""
    if soft_cap is None:
        return None
    if isinstance(soft_cap, bool) or not isinstance(soft_cap, (int, float)):
        raise ArgumentTypeError(f"{op}: soft_cap must be a number or None, got {type(soft_cap).__name__}")
    if not soft_cap > 0:
        raise ArgumentValueError(f"{op}: soft_cap must be over 0, got {soft_cap}")
    return None if soft_cap == math.inf else float(soft_cap)


def form(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None, is_causal: bool
) -> Form:
    far = window_size or None
    return (q, k, v, scaling, Mask(left=far, right=0 if is_causal else far)), {"soft_cap": soft_cap}


def reference(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None, is_causal: bool
) -> Tensor:
    args, options = form(q, k, v, scaling, window_size, soft_cap, is_causal)
    return _attention.attend(*args, **options)[0]


def samples() -> Iterator[Sample]:
    case = _attention.case
    yield case("no-keys", (1, 2, 3, 8), (2, 0), window_size=2)
    yield case("odd", (2, 2, 5, 8), (2, 7), window_size=1, soft_cap=1.5, layout="transposed")
    yield case("both-sides", (1, 4, 70, 32), (2, 60), window_size=18, is_causal=False)
    yield case("queries-without-keys", (1, 2, 90, 32), (2, 40), window_size=20, soft_cap=20.0)
    yield case("capped", (1, 2, 50, 48), (1, 70), soft_cap=5.0, is_causal=False)
    yield case("all-at-the-cap", (1, 2, 40, 64), (2, 40), soft_cap=0.5, fill="large")


def benchmarks() -> Iterator[Sample]:
    case = _attention.case
    yield case("B1-H4/2-S256-D64-capped", (1, 4, 256, 64), (2, 256), soft_cap=50.0)
    yield case("B1-H4/2-S512-D64-W128-capped", (1, 4, 512, 64), (2, 512), window_size=128, soft_cap=50.0)
    for window, suffix in [(4096, "-W4096"), (0, "")]:
        name = f"B2-H16/8-S8192-D256{suffix}-capped"
        yield case(name, (2, 16, 8192, 256), (8, 8192), window_size=window, soft_cap=50.0)


gemma_attention.contract = _attention.contract_of(
    form, canonical=canonical, reference=reference, samples=samples, benchmarks=benchmarks
)
