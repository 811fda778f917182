"""The larger of each element and 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import activations
from tilegym_cutile.elementwise import backward_kernel, forward_kernel, in_step, run

if TYPE_CHECKING:
    from torch import Tensor


def _value(x: Any, dtype: Any) -> Any:  # noqa: ARG001 - exact in any
    return ct.maximum(x, 0.0, propagate_nan=True)


_FORWARD = forward_kernel("relu_tiles", _value)
_BACKWARD = backward_kernel("relu_backward_tiles", activations.relu_gradient)


@register_impl("relu", backend="cutile")
def relu(x: Tensor) -> Tensor:
    """See `tilegym/specs/relu.py`."""
    y = torch.empty_like(x)
    run(_FORWARD, in_step(x, y), elements=1024)
    return y


@register_backward("relu", backend="cutile")
def relu_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """The gradient of the input, from that of the output and the output itself: of its shape, dtype and strides."""
    dx = torch.empty_like(output)
    run(_BACKWARD, in_step(grad_output, output, dx))
    return dx
