"""Attention of the last query, with a window and a soft cap; the kernel is in `attention_decode.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_impl
from tilegym_cutile.attention_decode import Scores, decode

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("gemma_attention_decode", backend="cutile")
def gemma_attention_decode(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None
) -> Tensor:
    """See `tilegym/specs/gemma_attention_decode.py`."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    window = window_size + 1 if window_size else 0
    decode(q, k, v, out, Scores(scaling=scaling, soft_cap=soft_cap, position=k.shape[2] - 1, window=window))
    return out
