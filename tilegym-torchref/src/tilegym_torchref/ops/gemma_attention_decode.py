"""gemma_attention_decode in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("gemma_attention_decode", backend="torch")
def gemma_attention_decode(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None
) -> Tensor:
    """In float32, rounded once; q: (B, H, 1, D), k, v: (B, Hk, Sk, D)."""
    seen = visible(q, k, left=window_size or None, start=k.shape[2] - 1)
    return attention(q, k, v, scaling, seen, soft_cap=soft_cap).to(q.dtype).contiguous()
