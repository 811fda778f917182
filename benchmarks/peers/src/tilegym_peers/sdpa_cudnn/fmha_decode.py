"""fmha_decode by scaled_dot_product_attention, held to one of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tilegym import register_impl

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
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, scale=sm_scale, enable_gqa=True)
