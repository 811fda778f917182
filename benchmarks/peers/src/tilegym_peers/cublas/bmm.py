"""bmm by PyTorch, which is cuBLAS on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("bmm", backend="cublas")
def bmm(a: Tensor, b: Tensor, transpose_a: bool | None = None, transpose_b: bool | None = None) -> Tensor:
    return torch.bmm(a.mT if transpose_a else a, b.mT if transpose_b else b)
