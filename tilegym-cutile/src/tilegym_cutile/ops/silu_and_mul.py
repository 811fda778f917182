"""SiLU of the first half of the last dimension, times the second half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import gated
from tilegym_cutile.elementwise import run
from tilegym_cutile.rows import as_rows

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("silu_and_mul", backend="cutile")
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/silu_and_mul.py`."""
    *outer, width = input.shape
    half = width // 2
    if out is None:
        out = input.new_empty(*outer, half)
    rows = as_rows(input)
    run(gated.SILU, (rows, rows, as_rows(out)), gated.halves(half))
    return out


@register_backward("silu_and_mul", backend="cutile")
def silu_and_mul_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """The gradient of the input, from that of the output and the input: of the input's shape and dtype, contiguous."""
    gradient = torch.empty_like(input, memory_format=torch.contiguous_format)
    rows, gradients = as_rows(input), as_rows(gradient)
    half = rows.shape[-1] // 2
    arrays = (rows, rows, as_rows(grad_output), gradients, gradients)
    run(gated.SILU_BACKWARD, arrays, gated.halves(half), n=half)
    return gradient
