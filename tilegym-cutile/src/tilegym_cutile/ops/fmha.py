"""Attention; the kernels are in `attention.py` and `attention_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile.attention import Attention, attended, attended_with_lse
from tilegym_cutile.attention_backward import gradients
from tilegym_cutile.products import why_no_float8

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("fmha", backend="cutile", supports=why_no_float8)
def fmha(q: Tensor, k: Tensor, v: Tensor, scaling: float, is_causal: bool) -> Tensor:
    """See `tilegym/specs/fmha.py`."""
    return attended(q, k, v, _attention(scaling, is_causal))


def fmha_forward(q: Tensor, k: Tensor, v: Tensor, scaling: float, is_causal: bool) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores: (B, H, S), float32."""
    return attended_with_lse(q, k, v, _attention(scaling, is_causal))


@register_backward("fmha", backend="cutile", forward=fmha_forward)
def fmha_backward(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    output: Tensor,
    lse: Tensor,
    *,
    scaling: float,
    is_causal: bool,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k and v; None for those not in `needs`."""
    return gradients(grad_output, q, k, v, output, lse, _attention(scaling, is_causal), needs)


def _attention(scaling: float, is_causal: bool) -> Attention:
    return Attention(scaling=scaling, right=0 if is_causal else None)
