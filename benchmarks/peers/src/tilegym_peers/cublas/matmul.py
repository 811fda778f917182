"""matmul by PyTorch, which is cuBLAS on a GPU."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from tilegym import register_impl

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def why_not(
    a: Tensor,
    b: Tensor,  # noqa: ARG001 - of a's dtype
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> str | None:
    """It takes plain products, with a bias; of float8 what `torch._scaled_mm` takes."""
    if activation is not None or residual is not None:
        return "PyTorch has no matrix product with an activation or a residual"
    if a.dtype in _FLOAT8:
        return None if trans_b and not trans_a and bias is None else "cuBLAS takes float8 with trans_b alone"
    if out_dtype is not None or scale_a is not None or scale_b is not None:
        return "torch.matmul has no scales, and its operands' dtype"
    return None


@functools.cache
def _one(device: torch.device) -> Tensor:
    """No scale; made once, lest a call take two kernels more."""
    return torch.ones((), device=device)


@register_impl("matmul", backend="cublas", supports=why_not)
def matmul(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,  # noqa: ARG001 - refused
    residual: Tensor | None,  # noqa: ARG001 - refused
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> Tensor:
    a, b = a.mT if trans_a else a, b.mT if trans_b else b
    if a.dtype in _FLOAT8:
        first, second = (_one(a.device) if scale is None else scale.reshape(()) for scale in (scale_a, scale_b))
        product: Tensor = torch._scaled_mm(  # noqa: SLF001 - PyTorch's only one
            a,
            b,
            first,
            second,
            out_dtype=out_dtype,
            use_fast_accum=False,  # which would add up in fewer bits than the contract has
        )
        return product
    return torch.matmul(a, b) if bias is None else torch.addmm(bias, a, b)
