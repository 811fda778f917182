"""relu in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("relu", backend="eager")
def relu(x: Tensor) -> Tensor:
    return torch.relu(x)
