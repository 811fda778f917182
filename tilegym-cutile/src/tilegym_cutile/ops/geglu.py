"""The first half of a dimension times GELU of the second."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import gated
from tilegym_cutile.elementwise import in_step, run

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("geglu", backend="cutile")
def geglu(input: Tensor, dim: int, approximate: str = "none") -> Tensor:
    """See `tilegym/specs/geglu.py`."""
    up, gate = _halves(input, dim)
    y = torch.empty_like(up, memory_format=torch.contiguous_format)
    run(gated.GELU[approximate], in_step(gate, up, y), gated.APART)
    return y


@register_backward("geglu", backend="cutile")
def geglu_backward(grad_output: Tensor, input: Tensor, dim: int, approximate: str = "none") -> Tensor:
    """The gradient of the input, from that of the output and the input: of the input's shape and dtype, contiguous."""
    gradient = torch.empty_like(input, memory_format=torch.contiguous_format)
    (up, gate), (dup, dgate) = _halves(input, dim), _halves(gradient, dim)
    run(gated.GELU_BACKWARD[approximate], in_step(gate, up, grad_output, dgate, dup), gated.APART)
    return gradient


def _halves(tensor: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The halves of a dimension: by as_strided, which costs half as much as narrow."""
    shape, strides = [*tensor.shape], tensor.stride()
    shape[dim] //= 2
    second = tensor.storage_offset() + shape[dim] * strides[dim]
    return tensor.as_strided(shape, strides), tensor.as_strided(shape, strides, second)
