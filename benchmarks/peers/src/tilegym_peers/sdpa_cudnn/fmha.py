"""fmha by scaled_dot_product_attention, held to one of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tilegym import register_impl

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("fmha", backend="sdpa-cudnn")
def fmha(q: Tensor, k: Tensor, v: Tensor, scaling: float | None = None, is_causal: bool = True) -> Tensor:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scaling, enable_gqa=True)
