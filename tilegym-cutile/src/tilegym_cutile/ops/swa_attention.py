"""Sliding-window attention; the kernels are in `attention.py` and `attention_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile.attention import Attention, attended, attended_with_lse
from tilegym_cutile.attention_backward import gradients

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("swa_attention", backend="cutile")
def swa_attention(q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float, is_causal: bool) -> Tensor:
    """See `tilegym/specs/swa_attention.py`."""
    return attended(q, k, v, _attention(window_size, scaling, is_causal))


def swa_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, window_size: int, scaling: float, is_causal: bool
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores: (B, H, S), float32."""
    return attended_with_lse(q, k, v, _attention(window_size, scaling, is_causal))


@register_backward("swa_attention", backend="cutile", forward=swa_attention_forward)
def swa_attention_backward(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    lse: Tensor,
    *,
    window_size: int,
    scaling: float,
    is_causal: bool,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k and v; None for those not in `needs`."""
    return gradients(grad_output, q, k, v, output, lse, _attention(window_size, scaling, is_causal), needs)


def _attention(window_size: int, scaling: float, is_causal: bool) -> Attention:
    left = window_size - 1 if window_size else None
    return Attention(scaling=scaling, left=left, right=0 if is_causal else None)
