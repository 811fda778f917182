"""fmha in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("fmha", backend="torch")
def fmha(q: Tensor, k: Tensor, v: Tensor, scaling: float, is_causal: bool) -> Tensor:
    """In float32, rounded once; q: (B, H, S, D), k, v: (B, Hk, Sk, D)."""
    seen = visible(q, k, right=0 if is_causal else None)
    return torch.empty_like(q).copy_(attention(q, k, v, scaling, seen))
