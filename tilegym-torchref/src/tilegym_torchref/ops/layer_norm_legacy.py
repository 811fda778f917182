"""layer_norm_legacy in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("layer_norm_legacy", backend="torch")
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> Tensor:
    """In float32, rounded once; input: (..., *normalized_shape), weight and bias: normalized_shape."""
    y = torch.nn.functional.layer_norm(input.float(), normalized_shape, eps=eps)
    y = y * (weight_shift + (1.0 if weight is None else weight.float()))
    if bias is not None:
        y = y + bias.float()
    return y.to(input.dtype).contiguous()
