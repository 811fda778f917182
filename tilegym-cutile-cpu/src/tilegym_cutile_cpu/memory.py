"""Global memory: the storages of the arguments, and every way in which a kernel reads and writes them.

All accesses go through a `Memory`. The sanitizer is a subclass that looks at each access before it happens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from cuda.tile import PaddingMode
from cuda.tile._datatype import DType, is_float
from torch import Tensor

from tilegym_cutile_cpu.errors import BlockId, OutOfBoundsError, Site
from tilegym_cutile_cpu.values import compute_dtype, decode, encode, memory_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PADDING = {
    PaddingMode.ZERO: 0.0,
    PaddingMode.NEG_ZERO: -0.0,
    PaddingMode.NAN: float("nan"),
    PaddingMode.POS_INF: float("inf"),
    PaddingMode.NEG_INF: float("-inf"),
}


@dataclass(frozen=True, eq=False)
class Buffer:
    """The whole storage of one array argument, as a flat tensor of its memory dtype.

    name: the argument, as in the kernel's source, with its index in a tuple or list.
    group: arrays of one group may overlap: the items of a list do.
    tensor: the argument itself, whose shape and strides tell which elements of the storage are its own.
    """

    name: str
    group: str
    dtype: DType
    flat: Tensor
    tensor: Tensor

    @classmethod
    def of(cls, name: str, group: str, tensor: Tensor, dtype: DType) -> Buffer:
        storage = tensor.untyped_storage()
        flat = torch.empty(0, dtype=memory_dtype(dtype))
        flat.set_(storage, 0, (storage.nbytes() // flat.element_size(),), (1,))
        return cls(name, group, dtype, flat, tensor)

    @property
    def storage(self) -> int:
        """What tells one storage from another."""
        return self.tensor.untyped_storage().data_ptr()

    def index(self, offset: int) -> tuple[int, ...]:
        """The index into the argument of an element of the storage."""
        rest = offset - int(self.tensor.storage_offset())
        found = [0] * self.tensor.ndim
        for axis in sorted(range(self.tensor.ndim), key=self.tensor.stride, reverse=True):
            stride = self.tensor.stride(axis)
            if stride:
                found[axis], rest = divmod(rest, stride)
        return tuple(found)


@dataclass(slots=True, eq=False)
class Pointer:
    """A tile of pointers into one buffer: element offsets from the start of its storage, int64 of any shape."""

    buffer: Buffer
    offset: Tensor

    def reshape(self, shape: Sequence[int]) -> Pointer:
        return Pointer(self.buffer, self.offset.reshape(shape))

    def expand(self, shape: Sequence[int]) -> Pointer:
        return Pointer(self.buffer, self.offset.expand(shape))


@dataclass(slots=True, eq=False)
class Array:
    """An array inside the kernel: an argument, a slice of one, or an item of a list."""

    buffer: Buffer
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(slots=True, eq=False)
class TiledView:
    """An array cut into tiles. All tuples are in the order of the tile's axes: `order` has been applied to the array.

    steps: elements from one tile to the next; smaller than the tile where tiles overlap.
    """

    array: Array
    tile_shape: tuple[int, ...]
    steps: tuple[int, ...]
    padding: PaddingMode


@dataclass(slots=True, eq=False)
class GatherView:
    """An array from which one axis is picked by a tile of indices, and the others by a start."""

    array: Array
    tile_shape: tuple[int, ...]
    sparse_axis: int
    padding: PaddingMode


@dataclass(frozen=True)
class Access:
    """What is known of a load or store before it runs.

    in_bounds: the kernel promised (`check_bounds=False`) that it stays inside its array.
    atomic: it is ordered, or at least indivisible, with respect to other blocks.
    """

    site: Site
    in_bounds: bool = False
    atomic: bool = False
    acquire: bool = False
    release: bool = False


@dataclass(slots=True)
class Box:
    """The part of a tile that lies inside its array: `inner` in the tile, and as a strided piece of the storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    inner: tuple[slice, ...] | None
    first: tuple[int, ...]

    def of(self, flat: Tensor) -> Tensor:
        return flat.as_strided(self.shape, self.strides, self.offset)


@dataclass
class Memory:
    """The memory of one launch.

    block: the block that runs now.
    changes: counts writes that may have changed something, so that a loop that waits for ever can be told.
    """

    block: BlockId = (0, 0, 0)
    changes: int = 0
    buffers: list[Buffer] = field(default_factory=list)

    def add(self, buffer: Buffer) -> None:
        self.buffers.append(buffer)

    def begin_block(self, block: BlockId) -> None:
        self.block = block

    def undetermined(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A tile whose elements the kernel was not promised."""
        return torch.zeros(shape, dtype=compute_dtype(dtype))

    # -- tiles of a view --

    def load_tile(self, view: TiledView, index: Sequence[int], access: Access) -> Tensor:
        box = self._box(view, index, access)
        array = view.array
        part = decode(box.of(array.buffer.flat).clone(), array.buffer.dtype)
        if box.inner is None:
            return part
        tile = self.padding(view.padding, array.buffer.dtype, view.tile_shape)
        tile[box.inner] = part
        return tile

    def store_tile(self, view: TiledView, index: Sequence[int], tile: Tensor, access: Access) -> None:
        box = self._box(view, index, access)
        buffer = view.array.buffer
        part = tile if box.inner is None else tile[box.inner]
        box.of(buffer.flat).copy_(encode(part, buffer.dtype))
        self.changes += 1

    def update_tile(
        self, view: TiledView, index: Sequence[int], update: Callable[..., Tensor], access: Access, operand: Tensor
    ) -> None:
        """Atomically replace each element of the tile that is inside the array by `update(element, operand)`."""
        box = self._box(view, index, access)
        buffer = view.array.buffer
        target = box.of(buffer.flat)
        part = operand if box.inner is None else operand[box.inner]
        target.copy_(encode(update(decode(target, buffer.dtype), part), buffer.dtype))
        self.changes += 1

    def _box(self, view: TiledView, index: Sequence[int], access: Access) -> Box:
        array = view.array
        first = tuple(i * step for i, step in zip(index, view.steps, strict=True))
        offset = array.start
        for position, stride in zip(first, array.strides, strict=True):
            offset += position * stride
        if all(
            low >= 0 and low + size <= extent
            for low, size, extent in zip(first, view.tile_shape, array.shape, strict=True)
        ):
            return Box(view.tile_shape, array.strides, offset, None, first)
        if access.in_bounds:
            raise OutOfBoundsError(
                self.site(access),
                f"check_bounds=False, but this tile of shape {view.tile_shape} leaves the array of shape {array.shape}",
                argument=array.buffer.name,
                index=first,
            )
        low = [min(max(-at, 0), size) for at, size in zip(first, view.tile_shape, strict=True)]
        high = [
            max(min(extent - at, size), skip)
            for at, size, extent, skip in zip(first, view.tile_shape, array.shape, low, strict=True)
        ]
        offset += sum(skip * stride for skip, stride in zip(low, array.strides, strict=True))
        shape = tuple(end - skip for skip, end in zip(low, high, strict=True))
        if 0 in shape:
            offset = array.start
        return Box(shape, array.strides, offset, tuple(map(slice, low, high)), first)

    def padding(self, mode: PaddingMode, dtype: DType, shape: Sequence[int]) -> Tensor:
        if mode is PaddingMode.UNDETERMINED:
            return self.undetermined(dtype, shape)
        value = _PADDING[mode] if is_float(dtype) else 0
        return torch.full(tuple(shape), value, dtype=compute_dtype(dtype))

    # -- tiles of pointers --

    def load(self, pointer: Pointer, mask: Tensor | None, padding: Tensor | None, access: Access) -> Tensor:
        self._check_allocation(pointer, mask, access)
        buffer = pointer.buffer
        if mask is None:
            return decode(buffer.flat.take(pointer.offset), buffer.dtype)
        if padding is None:
            padding = self.undetermined(buffer.dtype, pointer.offset.shape)
        if not bool(mask.any()):
            return padding.expand(pointer.offset.shape)
        raw = buffer.flat.take(torch.where(mask, pointer.offset, pointer.offset[mask][0]))
        return torch.where(mask, decode(raw, buffer.dtype), padding)

    def store(self, pointer: Pointer, value: Tensor, mask: Tensor | None, access: Access) -> None:
        self._check_allocation(pointer, mask, access)
        offset, value = _active(mask, pointer.offset, value)
        pointer.buffer.flat[offset] = encode(value, pointer.buffer.dtype)
        self.changes += 1

    def update(
        self, pointer: Pointer, mask: Tensor | None, update: Callable[..., Tensor], access: Access, *operands: Tensor
    ) -> Tensor:
        """Atomically replace elements by `update(element, *operands)`, one lane after another. Returns what was there.

        Lanes that the mask leaves out return zero.
        """
        self._check_allocation(pointer, mask, access)
        buffer = pointer.buffer
        offset, *active = _active(mask, pointer.offset, *operands)
        before = torch.zeros(offset.shape, dtype=compute_dtype(buffer.dtype))
        for lanes in _rounds(offset):
            at = offset[lanes]
            raw = buffer.flat[at]
            old = decode(raw, buffer.dtype)
            new = encode(update(old, *(operand[lanes] for operand in active)), buffer.dtype)
            self.changes += not torch.equal(new, raw)
            buffer.flat[at] = new
            before[lanes] = old
        if mask is None:
            return before.reshape(pointer.offset.shape)
        result = torch.zeros(pointer.offset.shape, dtype=before.dtype)
        result[mask] = before
        return result

    def _check_allocation(self, pointer: Pointer, mask: Tensor | None, access: Access) -> None:
        offset = pointer.offset if mask is None else pointer.offset[mask]
        if not offset.numel():
            return
        size = pointer.buffer.flat.numel()
        low, high = torch.aminmax(offset)
        if int(low) < 0 or int(high) >= size:
            first = int(offset[(offset < 0) | (offset >= size)][0])
            raise OutOfBoundsError(
                self.site(access),
                f"outside the allocation, of {size} elements",
                argument=pointer.buffer.name,
                index=pointer.buffer.index(first),
            )

    def site(self, access: Access) -> Site:
        return access.site.at(self.block)


def _active(mask: Tensor | None, *tiles: Tensor) -> list[Tensor]:
    """The lanes that take part, as 1-D tensors."""
    if mask is None:
        return [tile.reshape(-1) for tile in tiles]
    return [tile[mask] for tile in tiles]


def _rounds(offset: Tensor) -> list[Tensor]:
    """Split lanes so that no two of one round share an address, keeping the order of lanes that do."""
    if offset.numel() < 2:
        return [torch.arange(offset.numel())]
    order = torch.argsort(offset, stable=True)
    address = offset[order]
    position = torch.arange(address.numel())
    starts = torch.cat((torch.ones(1, dtype=torch.bool), address[1:] != address[:-1]))
    rank = position - torch.cummax(torch.where(starts, position, 0), 0).values
    return [order[rank == r] for r in range(int(rank.max()) + 1)]


def permuted(array: Array, order: Sequence[int]) -> Array:
    """The array with its axes in another order."""
    if tuple(order) == tuple(range(len(array.shape))):
        return array
    return Array(
        array.buffer, array.start, tuple(array.shape[a] for a in order), tuple(array.strides[a] for a in order)
    )
