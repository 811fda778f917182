"""rms_norm in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("rms_norm", backend="torch")
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    """In float32, rounded once; input: (..., *normalized_shape), weight and bias: normalized_shape."""
    x = input.float()
    dims = tuple(range(-len(normalized_shape), 0))
    y = x * torch.rsqrt(x.square().mean(dims, keepdim=True) + eps)
    y = y * (offset + (1.0 if weight is None else weight.float()))
    if bias is not None:
        y = y + bias.float()
    return y.to(input.dtype).contiguous()
