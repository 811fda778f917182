"""attention_sink_decode in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.ops.attention_sink import attention_sink


@register_impl("attention_sink_decode", backend="torch")
def attention_sink_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
    kv_len_per_split: int | None,  # noqa: ARG001 - keys are not shared out here
) -> Tensor:
    """As for any number of queries; query: (B, 1, Hk, G, D), key, value: (B, Sk, Hk, D), sinks: (Hk * G,)."""
    return attention_sink(query, key, value, sinks, sm_scale, sliding_window, start_q, start_at)
