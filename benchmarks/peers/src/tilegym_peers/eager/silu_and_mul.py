"""silu_and_mul in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("silu_and_mul", backend="eager")
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    gate, up = input.chunk(2, dim=-1)
    return torch.mul(torch.nn.functional.silu(gate), up, out=out)
