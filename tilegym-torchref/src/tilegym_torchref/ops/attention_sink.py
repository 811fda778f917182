"""attention_sink in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("attention_sink", backend="torch")
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
    """In float32, rounded once; query: (B, S, Hk, G, D), key, value: (B, Sk, Hk, D), sinks: (Hk * G,)."""
    q, k, v = query.flatten(2, 3).transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    start = start_q if start_at is None else start_at.reshape(())
    seen = visible(q, k, left=sliding_window - 1 if sliding_window else None, right=0, start=start)
    output = attention(q, k, v, sm_scale, seen, sinks=sinks)
    return output.transpose(1, 2).flatten(2, 3).to(query.dtype).contiguous()
