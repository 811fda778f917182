"""What the matrix products have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym.contract import FLOAT8


def product(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
    """In float32, of operands that may be given transposed."""
    return (a.mT if trans_a else a).float() @ (b.mT if trans_b else b).float()


def rounded(result: Tensor, dtype: torch.dtype) -> Tensor:
    """To `dtype`, contiguous; float8 saturates."""
    if dtype in FLOAT8:
        largest = torch.finfo(dtype).max
        result = result.clamp(-largest, largest)
    return result.to(dtype).contiguous()
