"""swiglu by torch.compile."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import swiglu as eager


@register_impl("swiglu", backend="compile")
@torch.compile(dynamic=False)
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    return eager.swiglu(a, b)
