"""matmul by PyTorch, which is cuBLAS on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("matmul", backend="cublas")
def matmul(a: Tensor, b: Tensor, trans_a: bool | None = None, trans_b: bool | None = None) -> Tensor:
    return torch.matmul(a.mT if trans_a else a, b.mT if trans_b else b)
