"""group_gemm by PyTorch, product by product, each of which is cuBLAS on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


def why_not(
    group_A: list[Tensor],
    group_B: list[Tensor],  # noqa: ARG001 - of the same dtype
    transpose_b: bool,  # noqa: ARG001 - it takes both
    out_dtype: torch.dtype | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> str | None:
    """It has no float8, and its operands' dtype."""
    if out_dtype is not None or any(a.dtype.itemsize == 1 for a in group_A):
        return "torch.mm has no float8, and its operands' dtype"
    return None


@register_impl("group_gemm", backend="cublas", supports=why_not)
def group_gemm(
    group_A: list[Tensor],
    group_B: list[Tensor],
    transpose_b: bool,
    out_dtype: torch.dtype | None,  # noqa: ARG001 - refused
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> list[Tensor]:
    return [torch.mm(a, b.mT if transpose_b else b) for a, b in zip(group_A, group_B, strict=True)]
