"""swiglu in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("swiglu", backend="eager")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return torch.nn.functional.silu(a) * b
