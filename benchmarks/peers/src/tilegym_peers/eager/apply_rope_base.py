"""apply_rope_base in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


def why_not(
    q: Tensor,  # noqa: ARG001 - the contract's parameters
    k: Tensor,  # noqa: ARG001
    cos: Tensor,  # noqa: ARG001
    sin: Tensor,  # noqa: ARG001
    position_ids: Tensor | None = None,
    unsqueeze_dim: int = 1,  # noqa: ARG001
    partial_rotary_factor: float = 1.0,  # noqa: ARG001
) -> str | None:
    """It takes the tables as they are."""
    return None if position_ids is None else "the peers of apply_rope_base take no position_ids"


@register_impl("apply_rope_base", backend="eager", supports=why_not)
def apply_rope_base(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,  # noqa: ARG001 - the contract's parameters
    unsqueeze_dim: int = 1,
    partial_rotary_factor: float = 1.0,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:
    """As models have it, rounding in between; q: (B, H, S, D), cos, sin: (S, R), (1, S, R) or (B, S, R)."""
    cos, sin = ((table if table.dim() == 3 else table[None]).unsqueeze(unsqueeze_dim) for table in (cos, sin))
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The halves of the first R elements of each head rotate, the others pass."""
    rotating, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    first, second = rotating.chunk(2, dim=-1)
    rotated = rotating * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((rotated, rest), dim=-1) if rest.shape[-1] else rotated
