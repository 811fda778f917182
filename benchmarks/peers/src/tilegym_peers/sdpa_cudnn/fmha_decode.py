"""fmha_decode by scaled_dot_product_attention, held to one of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend

from tilegym import register_impl
from tilegym_peers.sdpa import attention

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("fmha_decode", backend="sdpa-cudnn")
def fmha_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sm_scale: float,
    kv_len_per_split: int | None,  # noqa: ARG001 - it shares keys out as it likes
) -> Tensor:
    return attention(SDPBackend.CUDNN_ATTENTION, q, k, v, sm_scale)
