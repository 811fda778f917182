"""gemma_attention in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("gemma_attention", backend="torch")
def gemma_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None, is_causal: bool
) -> Tensor:
    """In float32, rounded once; q: (B, H, S, D), k, v: (B, Hk, Sk, D)."""
    far = window_size or None
    seen = visible(q, k, left=far, right=0 if is_causal else far)
    return torch.empty_like(q).copy_(attention(q, k, v, scaling, seen, soft_cap=soft_cap))
