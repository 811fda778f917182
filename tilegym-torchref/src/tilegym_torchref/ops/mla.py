"""mla in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("mla", backend="torch")
def mla(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> Tensor:
    """In float32, rounded once; q: (B, H, S, D), k, v: (B, Hk, Sk, D), qpe: (B, H, S, Dp), kpe: (B, 1, Sk, Dp)."""
    seen = visible(q, k, right=0 if is_causal else None)
    return torch.empty_like(q).copy_(attention(q, k, v, scaling, seen, second=(qpe, kpe)))
