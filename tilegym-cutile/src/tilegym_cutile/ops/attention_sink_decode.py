"""Attention of one query with a sink, and with a window; the kernel is in `attention_decode.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_impl
from tilegym_cutile.attention_decode import Scores, decode

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("attention_sink_decode", backend="cutile")
def attention_sink_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
    kv_len_per_split: int | None,
) -> Tensor:
    """See `tilegym/specs/attention_sink_decode.py`."""
    batch, _, kv_heads, group, size = query.shape
    out = query.new_empty(batch, 1, kv_heads * group * size)
    scores = Scores(
        scaling=sm_scale,
        position=start_q,
        start=None if start_at is None else start_at.as_strided((1,), (1,)),
        window=sliding_window,
        sinks=sinks.view(kv_heads, group),
    )
    k, v = key.transpose(1, 2), value.transpose(1, 2)
    decode(query, k, v, out, scores, kv_len_per_split=kv_len_per_split)
    return out
