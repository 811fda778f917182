"""Activations."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from tilegym.ops import dropout, geglu, gelu, relu, silu_and_mul, softmax


class GELU(nn.GELU):
    """`torch.nn.GELU` on `tilegym.ops.gelu`."""

    def forward(self, input: Tensor) -> Tensor:
        """GELU of each element."""
        return gelu(input, approximate=self.approximate)


class ReLU(nn.ReLU):
    """`torch.nn.ReLU` on `tilegym.ops.relu`."""

    def forward(self, input: Tensor) -> Tensor:
        """The larger of each element and 0; in `input` itself if `inplace`."""
        result = relu(input)
        return input.copy_(result) if self.inplace else result


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` on `tilegym.ops.dropout`, with a new seed for each call in training.

    Seeds come from PyTorch's default generator for the CPU: `torch.manual_seed` settles them, and checkpointing repeats
    them. Compiled code draws them too; without `fullgraph=True` they break its graph. A CUDA graph that holds a call
    keeps that call's seed.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Zeros in the place of a part `p` of the elements, the others scaled; not in training, `input` itself."""
        seed: Any = 0
        if self.training:
            seed = torch.randint(2**63 - 1, (), device="cpu").item()
            known: Any = torch._check  # noqa: SLF001 - how a compiler is told what it cannot see
            known(seed >= 0)
            known(seed < 2**63 - 1)
        return dropout(input, seed, self.p, training=self.training, inplace=self.inplace)


class GEGLU(nn.Module):
    """The first half of a dimension times GELU of the second: `tilegym.ops.geglu`."""

    def __init__(self, dim: int = -1, approximate: Literal["none", "tanh"] = "none") -> None:
        """`dim`: the dimension that is halved."""
        super().__init__()
        self.dim, self.approximate = dim, approximate

    def forward(self, input: Tensor) -> Tensor:
        """Half of input along `dim`."""
        return geglu(input, self.dim, self.approximate)

    def extra_repr(self) -> str:
        """As `torch.nn.GELU` shows it."""
        return f"dim={self.dim}, approximate={self.approximate!r}"


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
