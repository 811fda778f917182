"""GELU in float64, for the references of several contracts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch

from tilegym.errors import ArgumentValueError

if TYPE_CHECKING:
    from torch import Tensor

_ROOT: Final = math.sqrt(2 / math.pi)
_CUBE: Final = 0.044715


def check_approximate(op: str, approximate: object) -> None:
    """`approximate` must name a form of GELU."""
    if approximate not in ("none", "tanh"):
        raise ArgumentValueError(f"{op}: approximate must be 'none' or 'tanh', got {approximate!r}")


def gelu(x: Tensor, approximate: str) -> Tensor:
    """The exact GELU, or that of tanh's form."""
    if approximate == "tanh":
        return x / 2 * (1 + torch.tanh(_ROOT * (x + _CUBE * x**3)))
    return x / 2 * torch.erfc(-x / math.sqrt(2))


def gelu_slope(x: Tensor, approximate: str) -> Tensor:
    """The derivative of `gelu`; its terms are all positive for positive x."""
    if approximate == "tanh":
        tanh = torch.tanh(_ROOT * (x + _CUBE * x**3))
        return (1 + tanh) / 2 + x / 2 * (1 - tanh**2) * _ROOT * (1 + 3 * _CUBE * x**2)
    return torch.erfc(-x / math.sqrt(2)) / 2 + x * torch.exp(-(x**2) / 2) * _ROOT / 2
