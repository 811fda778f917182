"""What peers by PyTorch's scaled_dot_product_attention share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.attention import SDPBackend


def attention(
    backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, scale: float | None, *, is_causal: bool = False
) -> Tensor:
    """scaled_dot_product_attention, held to one of its backends."""
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=True)
