"""Multi-head latent attention, prefill; the kernels are in `attention.py` and `attention_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile.attention import Attention, attended, attended_with_lse
from tilegym_cutile.attention_backward import gradients

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("mla", backend="cutile")
def mla(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> Tensor:
    """See `tilegym/specs/mla.py`."""
    return attended(q, k, v, _attention(qpe, kpe, is_causal, scaling))


def mla_forward(
    q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores: (B, H, S), float32."""
    return attended_with_lse(q, k, v, _attention(qpe, kpe, is_causal, scaling))


@register_backward("mla", backend="cutile", forward=mla_forward)
def mla_backward(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qpe: Tensor,
    kpe: Tensor,
    output: Tensor,
    lse: Tensor,
    *,
    is_causal: bool,
    scaling: float,
    needs: tuple[bool, ...] = (True,) * 5,
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v, qpe and kpe; None for those not in `needs`."""
    return gradients(grad_output, q, k, v, output, lse, _attention(qpe, kpe, is_causal, scaling), needs)


def _attention(qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> Attention:
    return Attention(scaling=scaling, right=0 if is_causal else None, second=(qpe, kpe))
