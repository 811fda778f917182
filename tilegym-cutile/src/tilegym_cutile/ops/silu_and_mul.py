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
    if out is None:
        shape = (*input.shape[:-1], input.shape[-1] // 2)
        out = torch.empty(shape, dtype=input.dtype, device=input.device)
    run(gated.SILU, (*_halves(input), as_rows(out)))
    return out


@register_backward("silu_and_mul", backend="cutile")
def silu_and_mul_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """The gradient of the input, from that of the output and the input: of the input's shape and dtype, contiguous."""
    gradient = torch.empty_like(input, memory_format=torch.contiguous_format)
    run(gated.SILU_BACKWARD, (*_halves(input), as_rows(grad_output), *_halves(gradient)))
    return gradient


def _halves(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of the last dimension, seen as rows."""
    rows = as_rows(tensor)
    half = rows.shape[-1] // 2
    return rows.narrow(-1, 0, half), rows.narrow(-1, half, half)
