"""relu in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("relu", backend="torch")
def relu(x: Tensor) -> Tensor:
    """Exact."""
    return torch.relu(x)
