"""swa_attention in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("swa_attention", backend="torch")
def swa_attention(q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float, is_causal: bool) -> Tensor:
    """In float32, rounded once; q: (B, H, S, D), k, v: (B, Hk, Sk, D)."""
    seen = visible(q, k, left=window_size - 1 if window_size else None, right=0 if is_causal else None)
    return torch.empty_like(q).copy_(attention(q, k, v, scaling, seen))
