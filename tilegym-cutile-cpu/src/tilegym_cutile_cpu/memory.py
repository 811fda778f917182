"""Global memory: every way in which a kernel reads and writes its arrays.

All accesses go through a `Memory`. The sanitizer is a subclass that looks at each access before it happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from cuda.tile import PaddingMode
from cuda.tile._datatype import is_float

from tilegym_cutile_cpu.errors import OutOfBoundsError
from tilegym_cutile_cpu.values import compute_dtype, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuda.tile._datatype import DType
    from torch import Tensor

    from tilegym_cutile_cpu.arrays import Access, Box, Buffer, Pointer, TiledView
    from tilegym_cutile_cpu.errors import BlockId, Site

_PADDING = {
    PaddingMode.ZERO: 0.0,
    PaddingMode.NEG_ZERO: -0.0,
    PaddingMode.NAN: float("nan"),
    PaddingMode.POS_INF: float("inf"),
    PaddingMode.NEG_INF: float("-inf"),
}


@dataclass
class Memory:
    """The memory of one launch.

    block: the block that runs now.
    changes: counts writes that may have changed something, so that a loop that waits for ever can be told.
    """

    block: BlockId = (0, 0, 0)
    changes: int = 0

    def add(self, buffer: Buffer) -> None:
        """Called with every array argument before the launch."""

    def begin_block(self, block: BlockId) -> None:
        self.block = block

    def undetermined(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        """A tile whose elements the kernel was not promised."""
        return torch.zeros(shape, dtype=compute_dtype(dtype))

    # -- tiles of a view --

    def load_tile(self, view: TiledView, index: Sequence[int], access: Access) -> Tensor:
        box = self.box(view, index, access)
        array = view.array
        part = decode(box.of(array.buffer.flat).clone(), array.buffer.dtype)
        if box.inner is None:
            return part
        tile = self.padding(view.padding, array.buffer.dtype, view.tile_shape)
        tile[box.inner] = part
        return tile

    def store_tile(self, view: TiledView, index: Sequence[int], tile: Tensor, access: Access) -> None:
        box = self.box(view, index, access)
        buffer = view.array.buffer
        part = tile if box.inner is None else tile[box.inner]
        box.of(buffer.flat).copy_(encode(part, buffer.dtype))
        self.changes += 1

    def update_tile(
        self, view: TiledView, index: Sequence[int], update: Callable[..., Tensor], access: Access, operand: Tensor
    ) -> None:
        """Atomically replace each element of the tile that is inside the array by `update(element, operand)`."""
        box = self.box(view, index, access)
        buffer = view.array.buffer
        target = box.of(buffer.flat)
        part = operand if box.inner is None else operand[box.inner]
        target.copy_(encode(update(decode(target, buffer.dtype), part), buffer.dtype))
        self.changes += 1

    def box(self, view: TiledView, index: Sequence[int], access: Access) -> Box:
        """Where a tile lies; an error if it crosses a bound that the kernel promised to keep."""
        box = view.box(index)
        if box.inner is not None and access.in_bounds:
            raise OutOfBoundsError(
                self.site(access),
                f"check_bounds=False, but this tile of shape {view.tile_shape} leaves the array of shape"
                f" {view.array.shape}",
                argument=view.array.buffer.name,
                index=view.array_index(box.first),
            )
        return box

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
            self.changes += int(not torch.equal(new, raw))
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
