"""Multi-head latent attention of one query, without its log-sum-exp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_impl
from tilegym_cutile.ops.mla_decoding import attend

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("mla_decoding_split_kv", backend="cutile")
def mla_decoding_split_kv(
    q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float, kv_len_per_split: int | None
) -> Tensor:
    """See `tilegym/specs/mla_decoding_split_kv.py`."""
    return attend(q, qpe, kv, kpe, sm_scale, kv_len_per_split=kv_len_per_split)
