"""persistent_layer_norm in PyTorch."""

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("persistent_layer_norm", backend="torch")
def persistent_layer_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """In float32, the norm rounded once; input: (..., *normalized_shape), mean and rstd: (...)."""
    x, columns = input.float(), tuple(range(-len(normalized_shape), 0))
    rows = input.shape[: input.dim() - len(normalized_shape)]
    kept = (*rows, *[1] * len(columns))
    if mean is not None and rstd is not None:
        mean, rstd = (one.clone(memory_format=torch.contiguous_format) for one in (mean, rstd))
        y = (x - mean.reshape(kept)) * rstd.reshape(kept)
    elif 0 in normalized_shape:
        y, mean, rstd = x, x.new_zeros(rows), x.new_zeros(rows)
    else:
        rough = x.mean(columns, keepdim=True)  # rounded at the scale of x, which may be far above that of y
        rest = (x - rough).mean(columns, keepdim=True)
        centered = x - rough - rest
        scale = torch.rsqrt(centered.square().mean(columns, keepdim=True) + eps)
        y, mean, rstd = centered * scale, (rough + rest).reshape(rows), scale.reshape(rows)
    if weight is not None:
        y = y * weight.float()
    if bias is not None:
        y = y + bias.float()
    return y.to(input.dtype).contiguous(), mean.detach(), rstd.detach()
