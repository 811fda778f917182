"""relu by torch.compile."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import relu as eager


@register_impl("relu", backend="compile")
@torch.compile(dynamic=False)
def relu(x: Tensor) -> Tensor:
    return eager.relu(x)
