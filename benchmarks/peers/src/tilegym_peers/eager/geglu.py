"""geglu in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("geglu", backend="eager")
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    value, gate = input.chunk(2, dim=dim)
    return value * torch.nn.functional.gelu(gate, approximate=approximate)
