"""Rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tilegym.ops import apply_rope_base


class RotaryEmbedding(nn.Module):
    """Rotary position embedding of queries and keys: the tables of cos and sin, and `tilegym.ops.apply_rope_base`.

    It holds no tensor: frequencies that went along with a cast of the model to bfloat16 would give wrong angles.
    """

    def __init__(self, head_size: int, base: float = 10000.0, partial_rotary_factor: float = 1.0) -> None:
        """`partial_rotary_factor`: the part of a head that is rotated, the first."""
        super().__init__()
        self.head_size, self.base, self.partial_rotary_factor = head_size, base, partial_rotary_factor

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The cosines and sines of positions: (..., S) → twice (..., S, R), float32."""
        rotated = int(self.head_size * self.partial_rotary_factor)
        exponents = torch.arange(0, rotated, 2, dtype=torch.float32, device=positions.device) / -rotated
        angles = positions[..., None].float() * self.base**exponents
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    def forward(
        self, q: Tensor, k: Tensor, position_ids: Tensor | None = None, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Rotate q: (B, H, S, D) and k: (B, Hk, S, D), or (B, S, H, D) if unsqueeze_dim is 2.

        position_ids: (1, S) or (B, S), the positions; None: 0, 1, ..., S - 1.
        """
        if position_ids is None:
            position_ids = torch.arange(q.shape[3 - unsqueeze_dim], device=q.device)
        cos, sin = self.tables(position_ids)
        factor = self.partial_rotary_factor
        return apply_rope_base(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim, partial_rotary_factor=factor)

    def extra_repr(self) -> str:
        """As torch's modules show their arguments."""
        return f"{self.head_size}, base={self.base}, partial_rotary_factor={self.partial_rotary_factor}"
