"""Matrix products of a group in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.products import product, rounded


@register_impl("group_gemm", backend="torch")
def group_gemm(
    group_A: list[Tensor],
    group_B: list[Tensor],
    transpose_b: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> list[Tensor]:
    """Each added up in float32, rounded once; (M, K) and (K, N), or (N, K)."""
    products = (product(a, b, trans_a=False, trans_b=transpose_b) for a, b in zip(group_A, group_B, strict=True))
    return [rounded(one, group_A[0].dtype if out_dtype is None else out_dtype) for one in products]
