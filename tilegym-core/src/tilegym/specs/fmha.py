"""fmha."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import FLOATS, Sample
from tilegym.op import dispatch
from tilegym.specs import _attention
from tilegym.specs._attention import Form, Mask

_OP = "fmha"
_DTYPES = (*FLOATS, torch.float8_e5m2)


@dispatch("fmha")
def fmha(
    q: Tensor, k: Tensor, v: Tensor, scaling: float | None = None, is_causal: bool = True, **kwargs: Any
) -> Tensor:
    """Attention: `scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scaling, enable_gqa=True)`.

    Args:
        q: (B, H, S, D), float32, float16, bfloat16 or float8_e5m2, any strides; D a multiple of 8, at most 256.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk. Head h of q meets head
            h // (H / Hk) of k and v.
        v: as k.
        scaling: the factor of q @ k.T; None: 1 / sqrt(D).
        is_causal: query i sees the keys 0 to i; otherwise all of them.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, S, D), q's dtype, with the strides of `torch.empty_like(q)`. Scores and sums are float32; the weights are
        rounded to q's dtype, for float8 to float16, before they are multiplied with v. Without keys it is 0.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.

    Gradient: q, k, v.

    Source: Vaswani et al., "Attention Is All You Need", 2017; Dao et al., "FlashAttention", 2022.
    """
    raise NotImplementedError


def canonical(
    q: Tensor, k: Tensor, v: Tensor, scaling: float | None = None, is_causal: bool = True
) -> tuple[Tensor, Tensor, Tensor, float, bool]:
    _attention.check_qkv(_OP, q, k, v, dtypes=_DTYPES)
    _attention.check_bool(_OP, "is_causal", is_causal)
    return q, k, v, _attention.checked_scaling(_OP, scaling, q.shape[3]), is_causal


def form(q: Tensor, k: Tensor, v: Tensor, scaling: float, is_causal: bool) -> Form:
    mask = Mask(right=0 if is_causal else None)
    return (q, k, v, scaling, mask), {}


def reference(q: Tensor, k: Tensor, v: Tensor, scaling: float, is_causal: bool) -> Tensor:
    args, options = form(q, k, v, scaling, is_causal)
    return _attention.attend(*args, **options)[0]


def samples() -> Iterator[Sample]:
    case = _attention.case
    yield case("no-queries", (2, 2, 0, 8), (1, 3))
    yield case("no-keys", (1, 2, 3, 8), (2, 0))
    yield case("one", (1, 1, 1, 8), (1, 1), layout="sliced")
    yield case("odd", (2, 6, 5, 8), (2, 7))
    yield case("all-keys", (2, 2, 70, 40), (2, 45), is_causal=False)
    yield case("causal", (1, 3, 75, 24), (1, 100))
    yield case("against-the-products", (1, 1, 33, 256), (1, 20), scaling=-0.1)
    yield case("large-scores", (1, 2, 50, 64), (2, 40), fill="large")


def benchmarks() -> Iterator[Sample]:
    case = _attention.case
    yield case("B1-H4-S256-D64-causal", (1, 4, 256, 64), (4, 256))
    yield case("B1-H8/2-S512-D128-causal", (1, 8, 512, 128), (2, 512))
    for batch, heads, length, size in [(2, 16, 4096, 256), (4, 32, 8192, 64), (4, 32, 4096, 128)]:
        shape = (batch, heads, length, size)
        yield case(f"B{batch}-H{heads}-S{length}-D{size}-causal", shape, (heads, length))
        yield case(f"B{batch}-H{heads}-S{length}-D{size}", shape, (heads, length), is_causal=False)


fmha.contract = _attention.contract_of(
    form, canonical=canonical, reference=reference, samples=samples, benchmarks=benchmarks, dtypes=_DTYPES
)
