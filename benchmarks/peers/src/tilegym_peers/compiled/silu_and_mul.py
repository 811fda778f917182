"""silu_and_mul by torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import silu_and_mul as eager


@register_impl("silu_and_mul", backend="compile")
@torch.compile(dynamic=False)
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    return eager.silu_and_mul(input, out)
