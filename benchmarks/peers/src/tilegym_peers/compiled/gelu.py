"""gelu by torch.compile."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import gelu as eager


@register_impl("gelu", backend="compile")
@torch.compile(dynamic=False)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    return eager.gelu(input, approximate)
