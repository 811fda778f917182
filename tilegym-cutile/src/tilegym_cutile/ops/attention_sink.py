"""Causal attention with sinks; the kernels are in `attention.py` and `attention_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile.attention import Attention, attend
from tilegym_cutile.attention_backward import fill_gradients

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("attention_sink", backend="cutile")
def attention_sink(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
) -> Tensor:
    """See `tilegym/specs/attention_sink.py`."""
    of = _attention(sinks, sm_scale, sliding_window, start_q, start_at)
    return _attended(query, key, value, of, None)


def attention_sink_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores and the sink: (B, H, S), float32."""
    batch, queries, kv_heads, group, _ = query.shape
    lse = torch.empty(batch, kv_heads * group, queries, dtype=torch.float32, device=query.device)
    of = _attention(sinks, sm_scale, sliding_window, start_q, start_at)
    return _attended(query, key, value, of, lse), lse


@register_backward("attention_sink", backend="cutile", forward=attention_sink_forward)
def attention_sink_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    start_at: Tensor | None,
    output: Tensor,
    lse: Tensor,
    *,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    needs: tuple[bool, bool, bool, bool] = (True, True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value and sinks; None for those not in `needs`."""
    of = _attention(sinks, sm_scale, sliding_window, start_q, start_at)
    make = torch.empty_like if query.numel() and key.numel() else torch.zeros_like
    dq = make(query) if needs[0] else None
    dk, dv = (make(key), make(value)) if needs[1] or needs[2] else (None, None)
    dsinks = fill_gradients(
        _by_heads(grad_output, query),
        _queries(query),
        key.transpose(1, 2),
        value.transpose(1, 2),
        _by_heads(output, query),
        lse,
        of,
        () if dq is None else (_queries(dq),),
        () if dk is None or dv is None else (dk.transpose(1, 2), dv.transpose(1, 2)),
        sinks=needs[3],
    )
    return dq, dk, dv, dsinks


def _attention(sinks: Tensor, sm_scale: float, sliding_window: int, start_q: int, start_at: Tensor | None) -> Attention:
    left = sliding_window - 1 if sliding_window else None
    return Attention(scaling=sm_scale, left=left, right=0, start=start_q, start_at=start_at, sinks=sinks)


def _attended(query: Tensor, key: Tensor, value: Tensor, of: Attention, lse: Tensor | None) -> Tensor:
    """The output, (B, S, H * D)."""
    batch, queries, kv_heads, group, size = query.shape
    make = torch.empty if key.shape[1] else torch.zeros
    out = make(size=(batch, queries, kv_heads * group * size), dtype=query.dtype, device=query.device)
    attend(_queries(query), key.transpose(1, 2), value.transpose(1, 2), _by_heads(out, query), of, lse)
    return out


def _queries(query: Tensor) -> Tensor:
    """A view (B, H, S, D) of (B, S, Hk, G, D) or, where heads do not merge, (B, Hk, G, S, D)."""
    batch, queries, kv_heads, group, size = query.shape
    strides = query.stride()
    if group == 1 or kv_heads == 1 or strides[2] == group * strides[3]:
        head = strides[2] if group == 1 else strides[3]
        return query.as_strided((batch, kv_heads * group, queries, size), (strides[0], head, strides[1], strides[4]))
    return query.transpose(1, 2).transpose(2, 3)


def _by_heads(output: Tensor, query: Tensor) -> Tensor:
    """A view (B, H, S, D) of (B, S, H * D)."""
    batch, queries, kv_heads, group, size = query.shape
    across, along, column = output.stride()
    return output.as_strided((batch, kv_heads * group, queries, size), (across, size * column, along, column))
