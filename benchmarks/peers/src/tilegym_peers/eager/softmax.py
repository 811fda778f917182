"""softmax in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("softmax", backend="eager")
def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)
