"""softmax in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("softmax", backend="torch")
def softmax(x: Tensor) -> Tensor:
    """Over the last dimension; x: (..., N)."""
    return torch.softmax(x, dim=-1).contiguous()
