"""Attention of one query over all keys; the kernel is in `attention_decode.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_impl
from tilegym_cutile.attention_decode import Scores, decode

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("fmha_decode", backend="cutile")
def fmha_decode(q: Tensor, k: Tensor, v: Tensor, sm_scale: float, kv_len_per_split: int | None = None) -> Tensor:
    """See `tilegym/specs/fmha_decode.py`."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    decode(q, k, v, out, Scores(scaling=sm_scale, position=k.shape[2] - 1), kv_len_per_split=kv_len_per_split)
    return out
