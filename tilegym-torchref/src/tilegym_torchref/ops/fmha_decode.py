"""fmha_decode in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.attention import attention, visible


@register_impl("fmha_decode", backend="torch")
def fmha_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sm_scale: float,
    kv_len_per_split: int | None = None,  # noqa: ARG001 - keys are not shared out here
) -> Tensor:
    """In float32, rounded once; q: (B, H, 1, D), k, v: (B, Hk, Sk, D)."""
    return attention(q, k, v, sm_scale, visible(q, k)).to(q.dtype).contiguous()
