"""What the matrix products have in common."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

_FLOAT8: Final = (torch.float8_e4m3fn, torch.float8_e5m2)


def product(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> Tensor:
    """In float32, of operands that may be given transposed."""
    return (a.mT if trans_a else a).float() @ (b.mT if trans_b else b).float()


def rounded(result: Tensor, dtype: torch.dtype) -> Tensor:
    """To `dtype`, contiguous; float8 saturates."""
    if dtype in _FLOAT8:
        largest = torch.finfo(dtype).max
        result = result.clamp(-largest, largest)
    return result.to(dtype).contiguous()
