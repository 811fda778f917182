"""fmha by scaled_dot_product_attention, held to one of its backends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import SDPBackend

from tilegym import register_impl
from tilegym_peers.sdpa import attention

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("fmha", backend="sdpa-flash")
def fmha(q: Tensor, k: Tensor, v: Tensor, scaling: float | None = None, is_causal: bool = True) -> Tensor:
    return attention(SDPBackend.FLASH_ATTENTION, q, k, v, scaling, is_causal=is_causal)
