"""Matrix products of a batch in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.products import product, rounded


@register_impl("bmm", backend="torch")
def bmm(
    a: Tensor,
    b: Tensor,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> Tensor:
    """Added up in float32, rounded once; a: (B, M, K), b: (B, K, N), or their matrices transposed."""
    return rounded(product(a, b, transpose_a, transpose_b), a.dtype if out_dtype is None else out_dtype)
