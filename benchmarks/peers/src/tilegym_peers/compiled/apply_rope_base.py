"""apply_rope_base by torch.compile."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_peers.eager import apply_rope_base as eager


@register_impl("apply_rope_base", backend="compile", supports=eager.why_not)
@torch.compile(dynamic=False)
def apply_rope_base(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,
    partial_rotary_factor: float = 1.0,
) -> tuple[Tensor, Tensor]:
    return eager.apply_rope_base(q, k, cos, sin, position_ids, unsqueeze_dim, partial_rotary_factor)
