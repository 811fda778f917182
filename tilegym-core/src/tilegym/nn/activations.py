"""Activations."""

from __future__ import annotations

from torch import Tensor, nn

from tilegym.ops import silu_and_mul, softmax


class SiluAndMul(nn.Module):
    """SiLU of the first half of the last dimension, times the second half: `tilegym.ops.silu_and_mul`."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., 2h) → (..., h)."""
        return silu_and_mul(input)


class Softmax(nn.Softmax):
    """`torch.nn.Softmax` on `tilegym.ops.softmax`; over the last dimension unless told otherwise."""

    dim: int

    def __init__(self, dim: int = -1) -> None:
        """`dim`: the dimension that adds up to 1."""
        super().__init__(dim)

    def forward(self, input: Tensor) -> Tensor:
        """The softmax of input, of any rank from 1."""
        return softmax(input.movedim(self.dim, -1)).movedim(-1, self.dim)
