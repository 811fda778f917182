"""gelu in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("gelu", backend="eager")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return torch.nn.functional.gelu(input, approximate=approximate)
