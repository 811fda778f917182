"""get_rms_norm_module."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from tilegym.errors import ArgumentValueError
from tilegym.interfaces._bound import bound
from tilegym.ops import rms_norm
from tilegym.text import listed

if TYPE_CHECKING:
    from torch import Tensor


def get_rms_norm_module(model: str = "llama", *, backend: str | None = None) -> type[nn.Module]:
    """The class of a model's RMSNorm modules, on `rms_norm`: to be put in the place of Hugging Face's.

    Its instances are made by `(hidden_size, eps=1e-6)` and have a parameter `weight`: (hidden_size,). They compute in
    float32, round once, and return the dtype of their input.

    Args:
        model: "llama", whose weight begins as ones; or "gemma3", whose weight begins as zeros and has 1 added.
        backend: binds the class to a backend; None: each call chooses.

    Raises:
        ArgumentValueError: nothing is known of the model.
        BackendError: no installed distribution provides the backend.
    """
    if model not in _CLASSES:
        raise ArgumentValueError(f"get_rms_norm_module: model must be one of {listed(_CLASSES)}, got {model!r}")
    return bound(_CLASSES[model], backend)


class LlamaRMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, with a weight."""

    backend: ClassVar[str | None] = None
    offset: ClassVar[float] = 0.0
    """Added to the weight, which begins so that the sum is 1."""

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        """Make the weight."""
        super().__init__()
        self.weight = nn.Parameter(torch.full((hidden_size,), 1 - self.offset))
        self.variance_epsilon = eps

    def forward(self, hidden_states: Tensor) -> Tensor:
        """The norm of hidden_states: (..., hidden_size)."""
        weight, eps = self.weight, self.variance_epsilon
        return rms_norm(hidden_states, None, weight, eps, offset=self.offset, backend=self.backend)

    def extra_repr(self) -> str:
        """As Hugging Face shows it."""
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


class Gemma3RMSNorm(LlamaRMSNorm):
    """Root-mean-square norm over the last dimension, times 1 + weight."""

    offset = 1.0


_CLASSES = {"llama": LlamaRMSNorm, "gemma3": Gemma3RMSNorm}
