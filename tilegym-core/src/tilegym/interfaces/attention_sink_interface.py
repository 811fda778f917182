"""attention_sink_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.contract import check_shape, check_tensor
from tilegym.interfaces._attention import needs_gradient
from tilegym.ops import attention_sink, attention_sink_decode
from tilegym.specs._attention import check_groups

if TYPE_CHECKING:
    from torch import Tensor

_NAME = "attention_sink_interface"


def attention_sink_interface(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    start_q: int | Tensor | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> Tensor:
    """Causal attention with sinks, heads before positions: `attention_sink`, or `attention_sink_decode` of one query.

    Args:
        q: (B, H, S, D).
        k: (B, Hk, Sk, D); H a multiple of Hk.
        v: as k.
        sinks: (H,).
        scaling: the factor of the products; None: 1 / sqrt(D).
        sliding_window: how many keys a query sees, up to its own; None: all.
        start_q: the position of the first query, an int or a tensor of one; None: Sk - S, so that they are the last.
        backend: as of an op.
        **kwargs: further options of the op.

    Returns:
        (B, H, S, D).

    Raises:
        ShapeError: q, k or v has not four dimensions, or H is no multiple of Hk.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_tensor(_NAME, name, tensor)
        check_shape(_NAME, name, tensor, (None,) * 4)
    batch, heads, queries, size = q.shape
    kv_heads = k.shape[1]
    check_groups(_NAME, heads, kv_heads)
    query = q.transpose(1, 2).view(batch, queries, kv_heads, heads // max(1, kv_heads), size)
    start = k.shape[2] - queries if start_q is None else start_q
    one = queries == 1 and not needs_gradient(q, k, v, sinks)
    op = attention_sink_decode if one else attention_sink
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    output = op(query, keys, values, sinks, scaling, sliding_window, start, backend=backend, **kwargs)
    return output.view(batch, queries, heads, size).transpose(1, 2)
