"""softmax, a tile of columns at a time."""

import torch
from torch import Tensor

from tilegym import register_backward, register_impl

TILE = 256
"""Columns per tile."""


@register_impl("softmax", backend="example")
def softmax(x: Tensor) -> Tensor:
    """Three passes over each row, for its maximum, its sum, and its result; x: (..., N)."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    tiles = torch.split(x, TILE, dim=-1)
    peak = torch.full((*x.shape[:-1], 1), -torch.inf, device=x.device)
    for tile in tiles:
        peak = torch.maximum(peak, tile.float().amax(-1, keepdim=True))
    total = torch.zeros_like(peak)
    for tile in tiles:
        total += (tile.float() - peak).exp().sum(-1, keepdim=True)
    for tile, out in zip(tiles, torch.split(y, TILE, dim=-1), strict=True):
        out.copy_((tile.float() - peak).exp() / total)
    return y


@register_backward("softmax", backend="example")
def softmax_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """`output * (grad_output - sum(grad_output * output))`, in two passes over each row; both: (..., N)."""
    grad_input = torch.empty(output.shape, dtype=output.dtype, device=output.device)
    if grad_input.numel() == 0:
        return grad_input
    tiles = [*zip(torch.split(grad_output, TILE, dim=-1), torch.split(output, TILE, dim=-1), strict=True)]
    inner = torch.zeros((*output.shape[:-1], 1), device=output.device)
    for grad, y in tiles:
        inner += (grad.float() * y.float()).sum(-1, keepdim=True)
    for (grad, y), out in zip(tiles, torch.split(grad_input, TILE, dim=-1), strict=True):
        out.copy_(y.float() * (grad.float() - inner))
    return grad_input
