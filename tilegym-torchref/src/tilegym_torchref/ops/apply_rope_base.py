"""apply_rope_base in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("apply_rope_base", backend="torch")
def apply_rope_base(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, unsqueeze_dim: int
) -> tuple[Tensor, Tensor]:
    """In float32, rounded once; heads are dimension `unsqueeze_dim` of q and k."""
    cos, sin = (_at_positions(table.float(), position_ids).unsqueeze(unsqueeze_dim) for table in (cos, sin))
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def _at_positions(table: Tensor, position_ids: Tensor | None) -> Tensor:
    """Rows of cos or sin: (1 or B, S, R)."""
    if position_ids is None:
        return table if table.dim() == 3 else table[None]
    if table.dim() == 2 or table.shape[0] == 1:
        return table.flatten(0, -2)[position_ids]
    return table[torch.arange(table.shape[0], device=table.device)[:, None], position_ids]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    turned, rest = x.float().tensor_split([cos.shape[-1]], dim=-1)
    a, b = turned.tensor_split(2, dim=-1)
    turned = turned * cos + torch.cat([-b, a], dim=-1) * sin
    return torch.empty_like(x).copy_(torch.cat([turned, rest], dim=-1))
