"""gelu in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref import activations


@register_impl("gelu", backend="torch")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """In float32, rounded once."""
    return activations.gelu(input.float(), approximate).to(input.dtype)
