"""geglu in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref import activations


@register_impl("geglu", backend="torch")
def geglu(input: Tensor, dim: int, approximate: str = "none") -> Tensor:
    """In float32, rounded once; the halves of dimension `dim`."""
    a, b = input.float().tensor_split(2, dim)
    return (a * activations.gelu(b, approximate)).to(input.dtype).contiguous()
