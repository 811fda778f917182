"""silu_and_mul in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("silu_and_mul", backend="torch")
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    """In float32, rounded once; input: (..., 2h), out: (..., h)."""
    gate, up = input.float().tensor_split(2, dim=-1)
    result = (torch.nn.functional.silu(gate) * up).to(input.dtype).contiguous()
    return result if out is None else out.copy_(result)
