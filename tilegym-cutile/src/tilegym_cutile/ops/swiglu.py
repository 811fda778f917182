"""SiLU of one tensor times another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import gated
from tilegym_cutile.elementwise import in_step, run

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("swiglu", backend="cutile")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """See `tilegym/specs/swiglu.py`."""
    y = torch.empty_like(a, memory_format=torch.contiguous_format)
    run(gated.SILU, in_step(a, b, y), gated.APART)
    return y


@register_backward("swiglu", backend="cutile")
def swiglu_backward(grad_output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of a and b, from that of the output: of their shape and dtype, contiguous."""
    da = torch.empty_like(a, memory_format=torch.contiguous_format)
    db = torch.empty_like(b, memory_format=torch.contiguous_format)
    run(gated.SILU_BACKWARD, in_step(a, b, grad_output, da, db), gated.APART)
    return da, db
