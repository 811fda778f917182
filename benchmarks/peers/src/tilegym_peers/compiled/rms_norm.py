"""rms_norm by torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import rms_norm as eager


@register_impl("rms_norm", backend="compile", supports=eager.why_not)
@torch.compile(dynamic=False)
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    return eager.rms_norm(input, normalized_shape, weight, eps, bias, offset)
