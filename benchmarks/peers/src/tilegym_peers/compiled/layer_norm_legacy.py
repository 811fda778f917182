"""layer_norm_legacy by torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import layer_norm_legacy as eager


@register_impl("layer_norm_legacy", backend="compile", supports=eager.why_not)
@torch.compile(dynamic=False)
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> Tensor:
    return eager.layer_norm_legacy(input, normalized_shape, weight, bias, eps, weight_shift)
