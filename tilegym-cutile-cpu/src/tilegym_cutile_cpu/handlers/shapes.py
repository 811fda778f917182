"""Operations that move elements without changing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from cuda.tile._ir.arithmetic_ops import TileBroadcast, TileReshape
from cuda.tile._ir.ops import TileCat, TileExtract, TileInsert, TilePermute
from torch import Tensor

from tilegym_cutile_cpu.lowering import Compute, plain, pure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilegym_cutile_cpu.arrays import Pointer


@pure(TileReshape)
def tile_reshape(op: TileReshape) -> Compute:
    shape = op.result_var.get_type().shape

    def reshape(x: Tensor | Pointer) -> Tensor | Pointer:
        return x.reshape(shape)

    return reshape


@pure(TileBroadcast)
def tile_broadcast(op: TileBroadcast) -> Compute:
    shape = op.result_var.get_type().shape

    def broadcast(x: Tensor | Pointer) -> Tensor | Pointer:
        return x.expand(shape)

    return broadcast


@pure(TilePermute)
def tile_permute(op: TilePermute) -> Compute:
    axes = op.axes
    return lambda x: x.permute(axes)


@pure(TileCat)
def tile_cat(op: TileCat) -> Compute:
    axis = op.axis
    return lambda x, y: torch.cat((x, y), axis)


@pure(TileExtract)
def tile_extract(op: TileExtract) -> Compute:
    shape = op.shape

    def extract(x: Tensor, index: Sequence[Tensor]) -> Tensor:
        return x[_part(x, shape, index)]

    return extract


@plain(TileInsert)
def tile_insert(x: Tensor, value: Tensor, index: Sequence[Tensor]) -> Tensor:
    result = x.clone(memory_format=torch.contiguous_format)
    result[_part(x, value.shape, index)] = value
    return result


def _part(x: Tensor, shape: Sequence[int], index: Sequence[Tensor]) -> tuple[slice, ...]:
    """The slices of the sub-tile number `index` of `x`, cut into tiles of `shape`."""
    numbers = [int(i) for i in index]
    for number, extent, size in zip(numbers, x.shape, shape, strict=True):
        if not 0 <= number < extent // size:
            raise IndexError(f"sub-tile {tuple(numbers)} of shape {tuple(shape)} is outside a tile of {tuple(x.shape)}")
    return tuple(slice(n * size, (n + 1) * size) for n, size in zip(numbers, shape, strict=True))
