"""Arrays, pointers and views: what a kernel holds of the memory of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tilegym_cutile_cpu.values import memory_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuda.tile import PaddingMode
    from cuda.tile._datatype import DType
    from torch import Tensor

    from tilegym_cutile_cpu.errors import Site


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

    def permuted(self, order: Sequence[int]) -> Array:
        """The array with its axes in another order."""
        if tuple(order) == tuple(range(len(self.shape))):
            return self
        shape, strides = tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order)
        return Array(self.buffer, self.start, shape, strides)


@dataclass(slots=True, eq=False)
class TiledView:
    """An array cut into tiles. All tuples are in the order of the tile's axes: `order` has been applied to the array.

    steps: elements from one tile to the next; smaller than the tile where tiles overlap.
    order: the array's axis for each axis of the tile.
    """

    array: Array
    tile_shape: tuple[int, ...]
    steps: tuple[int, ...]
    order: tuple[int, ...]
    padding: PaddingMode

    def array_index(self, index: Sequence[int]) -> tuple[int, ...]:
        """An index along the tile's axes, in the order of the array's."""
        by_axis = dict(zip(self.order, index, strict=True))
        return tuple(by_axis[axis] for axis in range(len(by_axis)))

    def box(self, index: Sequence[int]) -> Box:
        """Where the tile number `index` lies."""
        array, shape = self.array, self.tile_shape
        offset, inside, at = array.start, True, []
        for i, step, size, stride, extent in zip(index, self.steps, shape, array.strides, array.shape, strict=True):
            low = i * step
            at.append(low)
            offset += low * stride
            inside = inside and low >= 0 and low + size <= extent
        first = tuple(at)
        return Box(shape, array.strides, offset, None, first) if inside else self._clipped(first, offset)

    def _clipped(self, first: tuple[int, ...], offset: int) -> Box:
        array = self.array
        low = [min(max(-at, 0), size) for at, size in zip(first, self.tile_shape, strict=True)]
        high = [
            max(min(extent - at, size), skip)
            for at, size, extent, skip in zip(first, self.tile_shape, array.shape, low, strict=True)
        ]
        shape = tuple(end - skip for skip, end in zip(low, high, strict=True))
        if 0 in shape:
            offset = array.start  # nothing is there; any offset inside the storage will do
        else:
            offset += sum(skip * stride for skip, stride in zip(low, array.strides, strict=True))
        return Box(shape, array.strides, offset, tuple(map(slice, low, high)), first)


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
    """The part of a tile that lies inside its array, as a strided piece of the storage.

    inner: the same part in the tile, or None if that is the whole tile.
    first: where in the array the tile's first element is, along the tile's axes; it may lie outside.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    inner: tuple[slice, ...] | None
    first: tuple[int, ...]

    def of(self, flat: Tensor) -> Tensor:
        return flat.as_strided(self.shape, self.strides, self.offset)
