"""Arrays, the views that cut them into tiles, and the loads and stores through views and pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from cuda.tile import MemoryOrder
from cuda.tile._ir.ops import (
    GetArrayListItem,
    LoadPointer,
    MakeGatherScatterView,
    MakeListView,
    MakePartitionView,
    MakeStridedView,
    MakeTensorView,
    NumTiles,
    PointerOffset,
    StorePointer,
    TileLoad,
    TileStore,
)
from cuda.tile._ir.type import GatherScatterViewTy, StridedViewTy
from torch import Tensor

from tilegym_cutile_cpu.arrays import Access, Array, GatherView, Pointer, TiledView
from tilegym_cutile_cpu.lowering import Compute, Frame, Lowering, effect, plain, pure
from tilegym_cutile_cpu.values import compute_dtype, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

_ACQUIRES = (MemoryOrder.ACQUIRE, MemoryOrder.ACQ_REL)
_RELEASES = (MemoryOrder.RELEASE, MemoryOrder.ACQ_REL)


def access(op: Any, lowering: Lowering) -> Access:
    """What the operation says of its memory access."""
    order = getattr(op, "memory_order", MemoryOrder.WEAK)
    return Access(
        lowering.site(op.loc),
        in_bounds=any(getattr(op, "inbounds", ())),
        atomic=order is not MemoryOrder.WEAK,
        acquire=order in _ACQUIRES,
        release=order in _RELEASES,
    )


@plain(MakeTensorView)
def make_tensor_view(base: Pointer, shape: Sequence[Tensor], strides: Sequence[Tensor]) -> Array:
    return Array(base.buffer, int(base.offset), tuple(map(int, shape)), tuple(map(int, strides)))


@pure(MakePartitionView, MakeStridedView)
def make_tiled_view(op: MakePartitionView | MakeStridedView) -> Compute:
    ty = op.result_var.get_type()
    steps = ty.traversal_steps if isinstance(ty, StridedViewTy) else ty.tile_shape
    return lambda array: TiledView(array.permuted(ty.order), ty.tile_shape, steps, ty.order, ty.padding_mode)


@pure(MakeGatherScatterView)
def make_gather_scatter_view(op: MakeGatherScatterView) -> Compute:
    ty = op.result_var.get_type()
    return lambda array: GatherView(array, ty.tile_shape, ty.sparse_dim, ty.padding_mode)


@plain(NumTiles)
def num_tiles(view: TiledView) -> Any:
    counts = [
        scalar(-(-extent // step), torch.int32) for extent, step in zip(view.array.shape, view.steps, strict=True)
    ]
    return counts if len(counts) > 1 else counts[0]


@plain(MakeListView)
def make_list_view(items: Sequence[Array], _length: Tensor) -> Sequence[Array]:
    return items


@pure(GetArrayListItem)
def get_array_list_item(op: GetArrayListItem) -> Compute:
    index_dtype = compute_dtype(op.x.get_type().item_type.index_dtype)

    def item(arrays: Sequence[Array], index: Tensor) -> list[Any]:
        position = int(index)
        if not 0 <= position < len(arrays):
            raise IndexError(f"item {position} of a list of {len(arrays)} arrays")
        array = arrays[position]
        extents = [scalar(n, index_dtype) for n in (*array.shape, *array.strides)]
        return [Pointer(array.buffer, scalar(array.start)), *extents]

    return item


@plain(PointerOffset)
def pointer_offset(pointer: Pointer, offset: Tensor) -> Pointer:
    return Pointer(pointer.buffer, pointer.offset + offset)


def _numbers(index: Sequence[Tensor]) -> list[int]:
    return [int(i.item()) for i in index]


@effect(TileLoad)
def tile_load(op: TileLoad, lowering: Lowering) -> Compute:
    how = access(op, lowering)

    def load(frame: Frame, view: TiledView, index: Sequence[Tensor]) -> Tensor:
        return frame.memory.load_tile(view, _numbers(index), how)

    def load_gather(frame: Frame, view: GatherView, index: Sequence[Tensor]) -> Tensor:
        pointer, mask = _gather_pointer(view, index)
        padding = frame.memory.padding(view.padding, view.array.buffer.dtype, view.tile_shape)
        return frame.memory.load(pointer, mask, padding, how)

    return load_gather if isinstance(op.view.get_type(), GatherScatterViewTy) else load


@effect(TileStore)
def tile_store(op: TileStore, lowering: Lowering) -> Compute:
    how = access(op, lowering)

    def store(frame: Frame, view: TiledView, index: Sequence[Tensor], tile: Tensor) -> None:
        frame.memory.store_tile(view, _numbers(index), tile, how)

    def store_scatter(frame: Frame, view: GatherView, index: Sequence[Tensor], tile: Tensor) -> None:
        pointer, mask = _gather_pointer(view, index)
        frame.memory.store(pointer, tile, mask, how)

    return store_scatter if isinstance(op.view.get_type(), GatherScatterViewTy) else store


def _gather_pointer(view: GatherView, index: Sequence[Tensor]) -> tuple[Pointer, Tensor]:
    """Pointers to the elements of a tile, and which of them are inside the array."""
    array = view.array
    offset = scalar(array.start)
    mask = torch.ones((), dtype=torch.bool)
    for axis, (start, size) in enumerate(zip(index, view.tile_shape, strict=True)):
        positions = start.to(torch.int64)
        if axis != view.sparse_axis:
            positions = positions + torch.arange(size)
        positions = positions.reshape([-1 if i == axis else 1 for i in range(len(view.tile_shape))])
        mask = mask & (positions >= 0) & (positions < array.shape[axis])
        offset = offset + positions * array.strides[axis]
    return Pointer(array.buffer, offset), mask.expand(view.tile_shape)


@effect(LoadPointer)
def load_pointer(op: LoadPointer, lowering: Lowering) -> Compute:
    how = access(op, lowering)

    def load(frame: Frame, pointer: Pointer, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        return frame.memory.load(pointer, mask, padding, how)

    return load


@effect(StorePointer)
def store_pointer(op: StorePointer, lowering: Lowering) -> Compute:
    how = access(op, lowering)

    def store(frame: Frame, pointer: Pointer, value: Tensor, mask: Tensor | None) -> None:
        frame.memory.store(pointer, value, mask, how)

    return store
