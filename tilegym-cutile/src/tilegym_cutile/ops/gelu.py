"""GELU, exact or in tanh's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import activations
from tilegym_cutile.elementwise import backward_kernel, forward_kernel, in_step, run

if TYPE_CHECKING:
    from torch import Tensor


_FORWARD = {
    "none": forward_kernel("gelu_tiles", activations.gelu),
    "tanh": forward_kernel("gelu_tanh_tiles", activations.gelu_tanh),
}
_BACKWARD = {
    "none": backward_kernel("gelu_backward_tiles", activations.gelu_gradient),
    "tanh": backward_kernel("gelu_tanh_backward_tiles", activations.gelu_tanh_gradient),
}


@register_impl("gelu", backend="cutile")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """See `tilegym/specs/gelu.py`."""
    y = torch.empty_like(input)
    run(_FORWARD[approximate], in_step(input, y), elements=4096)
    return y


@register_backward("gelu", backend="cutile")
def gelu_backward(grad_output: Tensor, input: Tensor, approximate: str = "none") -> Tensor:
    """The gradient of the input, from that of the output and the input: of its shape, dtype and, if dense, strides."""
    dx = torch.empty_like(input)
    run(_BACKWARD[approximate], in_step(grad_output, input, dx), elements=4096)
    return dx
