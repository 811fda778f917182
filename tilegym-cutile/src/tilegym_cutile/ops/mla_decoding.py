"""Multi-head latent attention of one query, whose heads share all keys; the kernel is in `attention_decode.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_impl
from tilegym_cutile.attention_decode import Scores, decode

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("mla_decoding", backend="cutile")
def mla_decoding(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    """See `tilegym/specs/mla_decoding.py`."""
    lse = q.new_empty(*q.shape[:2], dtype=torch.float32)
    return attend(q, qpe, kv, kpe, sm_scale, lse=lse), lse


def attend(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float,
    *,
    lse: Tensor | None = None,
    kv_len_per_split: int | None = None,
) -> Tensor:
    """The output: (B, H, D); lse: (B, H), written if given. Latent vectors are keys of one head, and its values."""
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    second = qpe.unsqueeze(1), kpe.unsqueeze(1)
    scores = Scores(scaling=sm_scale, position=kv.shape[1] - 1, second=second)
    decode(q, kv.unsqueeze(1), None, out, scores, lse=lse, kv_len_per_split=kv_len_per_split)
    return out
