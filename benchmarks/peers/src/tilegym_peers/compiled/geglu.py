"""geglu by torch.compile."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import geglu as eager


@register_impl("geglu", backend="compile")
@torch.compile(dynamic=False)
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    return eager.geglu(input, dim, approximate)
