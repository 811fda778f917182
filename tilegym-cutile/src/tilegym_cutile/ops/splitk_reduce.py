"""Attention over all keys, from attention over splits of them; the kernel is in `splits.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_impl
from tilegym_cutile.splits import reduce_splits

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("splitk_reduce", backend="cutile")
def splitk_reduce(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/splitk_reduce.py`."""
    if out is None:
        batch, heads, _, size = attn_splitk_out.shape
        out = torch.empty(batch, heads, size, dtype=attn_splitk_out.dtype, device=attn_splitk_out.device)
    if out.numel():
        reduce_splits(attn_splitk_out, lse_splitk_out, out)
    return out
