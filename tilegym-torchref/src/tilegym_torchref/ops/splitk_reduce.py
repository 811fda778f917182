"""splitk_reduce in PyTorch."""

import math

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("splitk_reduce", backend="torch")
def splitk_reduce(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> Tensor:
    """In float32, rounded once; attn_splitk_out: (B, H, splits, D), out: (B, H, D)."""
    empty = lse_splitk_out == -math.inf
    weights = torch.softmax(lse_splitk_out * math.log(2), -1).masked_fill(empty, 0.0)
    held = attn_splitk_out.float().masked_fill(empty[..., None], 0.0)
    result = (weights[..., None, :] @ held).squeeze(-2)
    return result.to(attn_splitk_out.dtype) if out is None else out.copy_(result)
