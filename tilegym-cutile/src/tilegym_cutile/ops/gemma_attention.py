"""Attention with a window and a soft cap; the kernels are in `attention.py` and `attention_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile.attention import Attention, attended, attended_with_lse
from tilegym_cutile.attention_backward import gradients

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("gemma_attention", backend="cutile")
def gemma_attention(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None, is_causal: bool
) -> Tensor:
    """See `tilegym/specs/gemma_attention.py`."""
    return attended(q, k, v, _attention(scaling, window_size, soft_cap, is_causal))


def gemma_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, scaling: float, window_size: int, soft_cap: float | None, is_causal: bool
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores: (B, H, S), float32."""
    return attended_with_lse(q, k, v, _attention(scaling, window_size, soft_cap, is_causal))


@register_backward("gemma_attention", backend="cutile", forward=gemma_attention_forward)
def gemma_attention_backward(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    lse: Tensor,
    *,
    scaling: float,
    window_size: int,
    soft_cap: float | None,
    is_causal: bool,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k and v; None for those not in `needs`."""
    of = _attention(scaling, window_size, soft_cap, is_causal)
    return gradients(grad_output, q, k, v, output, lse, of, needs)


def _attention(scaling: float, window_size: int, soft_cap: float | None, is_causal: bool) -> Attention:
    far = window_size or None
    return Attention(scaling=scaling, left=far, right=0 if is_causal else far, soft_cap=soft_cap)
