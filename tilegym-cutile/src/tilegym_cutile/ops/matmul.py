"""Matrix product, with what often follows it, and its gradients, which are such products too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym.contract import FLOAT8
from tilegym_cutile import activations
from tilegym_cutile.elementwise import backward_kernel, copy, in_step, run
from tilegym_cutile.products import Epilogue, multiply, new_product, why_no_float8
from tilegym_cutile.reductions import sum_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@register_impl("matmul", backend="cutile", supports=why_no_float8)
def matmul(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,
    *,
    static_persistent: bool = True,
    use_tma: bool | None = None,
) -> Tensor:
    """See `tilegym/specs/matmul.py`."""
    c = new_product(a, b, trans_a, trans_b, out_dtype)
    after = Epilogue(scales=_given(scale_a, scale_b), bias=bias, activation=activation, residual=residual)
    multiply(
        a,
        b,
        c,
        trans_a=trans_a,
        trans_b=trans_b,
        tf32=tf32,
        after=after,
        persistent=static_persistent,
        use_tma=use_tma,
    )
    return c


def matmul_forward(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,
) -> tuple[Tensor, Tensor]:
    """The product, and what the activation is given: (M, N), or empty without an activation."""
    c = new_product(a, b, trans_a, trans_b, out_dtype)
    kept_dtype = torch.bfloat16 if c.dtype in FLOAT8 else c.dtype
    kept = c.new_empty(size=(0,) if activation is None else c.shape, dtype=kept_dtype)
    after = Epilogue(
        scales=_given(scale_a, scale_b),
        bias=bias,
        activation=activation,
        residual=residual,
        preactivation=None if activation is None else kept,
    )
    multiply(a, b, c, trans_a=trans_a, trans_b=trans_b, after=after, tf32=tf32)
    return c, kept


def _given(*tensors: Tensor | None) -> tuple[Tensor, ...]:
    return tuple([one for one in tensors if one is not None])


_GRADIENTS = {
    "relu": backward_kernel("matmul_relu_backward_tiles", activations.relu_gradient),
    "silu": backward_kernel("matmul_silu_backward_tiles", activations.silu_gradient),
    "gelu": backward_kernel("matmul_gelu_backward_tiles", activations.gelu_gradient),
    "gelu_tanh": backward_kernel("matmul_gelu_tanh_backward_tiles", activations.gelu_tanh_gradient),
}


@register_backward("matmul", backend="cutile", forward=matmul_forward)
def matmul_backward(
    grad_output: Tensor,
    a: Tensor,
    b: Tensor,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    preactivation: Tensor,
    trans_a: bool,
    trans_b: bool,
    activation: str | None,
    tf32: bool,
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of a, b, bias and residual; None for what is not in `needs`. Laid out as those."""
    da, db, dresidual = (
        torch.empty_like(one) if needed else None
        for one, needed in zip((a, b, grad_output), (needs[0], needs[1], needs[3]), strict=True)
    )
    if dresidual is not None:
        copy(grad_output, dresidual)
    inner = grad_output
    if activation is not None:
        inner = torch.empty_like(preactivation)
        run(_GRADIENTS[activation], in_step(grad_output, preactivation, inner))
    after = Epilogue(scales=_given(scale_a, scale_b))
    if da is not None:
        multiply(inner, b, da.mT if trans_a else da, trans_b=not trans_b, after=after, tf32=tf32)
    if db is not None:
        multiply(a, inner, db.mT if trans_b else db, trans_a=not trans_a, after=after, tf32=tf32)
    dbias = None
    if needs[2] and bias is not None:
        dbias = sum_rows((inner,), (bias,))[0] if inner.numel() else torch.zeros_like(bias)
    return da, db, dbias, dresidual
