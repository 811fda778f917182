"""bmm by PyTorch, which is cuBLAS on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


def why_not(
    a: Tensor,
    b: Tensor,  # noqa: ARG001 - of a's dtype
    transpose_a: bool,  # noqa: ARG001 - it takes both
    transpose_b: bool,  # noqa: ARG001 - likewise
    out_dtype: torch.dtype | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> str | None:
    """It has no float8, and its operands' dtype."""
    return (
        "torch.bmm has no float8, and its operands' dtype" if out_dtype is not None or a.dtype.itemsize == 1 else None
    )


@register_impl("bmm", backend="cublas", supports=why_not)
def bmm(
    a: Tensor,
    b: Tensor,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: torch.dtype | None,  # noqa: ARG001 - refused
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> Tensor:
    return torch.bmm(a.mT if transpose_a else a, b.mT if transpose_b else b)
