"""A memory that looks at every access before it happens, and raises at the first one that is wrong on a GPU.

What is wrong: a tile wholly outside its array; an access outside the array though inside its allocation; two lanes of
one store at one address; two blocks at one address, one of them writing, with nothing that orders them (a race); two
arguments at one address, one of them written, though the compiler was told that arguments do not overlap. Padding that
the kernel left undetermined is poisoned, so that results show whether the kernel relies on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilegym_cutile_cpu.errors import AccessError, BlockId, Site
from tilegym_cutile_cpu.memory import Memory
from tilegym_cutile_cpu.shadow import History, Kind, Lanes, Piece, Place, Shadow
from tilegym_cutile_cpu.values import compute_dtype, undetermined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuda.tile._datatype import DType

    from tilegym_cutile_cpu.arrays import Access, Buffer, Pointer, TiledView


class SanitizerError(AccessError):
    """What the sanitizer found: see the subclass. `site`, `argument` and `index` say where."""


class OutsideArrayError(SanitizerError):
    """A tile that lies wholly outside its array, or an element outside the array though inside its allocation."""


class DuplicateStoreError(SanitizerError):
    """Two lanes of one store write to one address: which of them wins is not determined."""


class RaceError(SanitizerError):
    """Two blocks use one address, at least one of them writes, and no atomic operation orders them.

    other_block: the block that used it before.
    """

    def __init__(
        self, site: Site, message: str, *, other_block: BlockId, argument: str, index: tuple[int, ...]
    ) -> None:
        super().__init__(site, message, argument=argument, index=index)
        self.other_block = other_block


class AliasError(SanitizerError):
    """Two arguments overlap where one is written. cuTile compiles kernels on the promise that they do not."""


class SanitizedMemory(Memory):
    """`Memory` with every access checked first."""

    def __init__(self) -> None:
        super().__init__()
        self._history = History()
        self._shadows: dict[int, Shadow] = {}

    def add(self, buffer: Buffer) -> None:
        super().add(buffer)
        nbytes = buffer.tensor.untyped_storage().nbytes()
        self._shadows.setdefault(buffer.storage, Shadow(nbytes)).add(buffer)

    def begin_block(self, block: BlockId) -> None:
        super().begin_block(block)
        self._history.begin_block(block)

    def undetermined(self, dtype: DType, shape: Sequence[int]) -> Tensor:
        return torch.full(tuple(shape), undetermined(dtype), dtype=compute_dtype(dtype))

    def load_tile(self, view: TiledView, index: Sequence[int], access: Access) -> Tensor:
        self._check_tile(Kind.READ, view, index, access)
        return super().load_tile(view, index, access)

    def store_tile(self, view: TiledView, index: Sequence[int], tile: Tensor, access: Access) -> None:
        self._check_tile(Kind.WRITE, view, index, access)
        super().store_tile(view, index, tile, access)

    def update_tile(
        self, view: TiledView, index: Sequence[int], update: Callable[..., Tensor], access: Access, operand: Tensor
    ) -> None:
        self._check_tile(Kind.ATOMIC, view, index, access)
        super().update_tile(view, index, update, access, operand)

    def load(self, pointer: Pointer, mask: Tensor | None, padding: Tensor | None, access: Access) -> Tensor:
        self._check_lanes(Kind.READ, pointer, mask, access)
        return super().load(pointer, mask, padding, access)

    def store(self, pointer: Pointer, value: Tensor, mask: Tensor | None, access: Access) -> None:
        self._check_lanes(Kind.WRITE, pointer, mask, access)
        super().store(pointer, value, mask, access)

    def update(
        self, pointer: Pointer, mask: Tensor | None, update: Callable[..., Tensor], access: Access, *operands: Tensor
    ) -> Tensor:
        self._check_lanes(Kind.ATOMIC, pointer, mask, access)
        return super().update(pointer, mask, update, access, *operands)

    def _check_tile(self, kind: Kind, view: TiledView, index: Sequence[int], access: Access) -> None:
        buffer = view.array.buffer
        box = self.box(view, index, access)
        if 0 in box.shape:
            raise OutsideArrayError(
                self.site(access),
                f"this tile of shape {view.tile_shape} is wholly outside the array, of shape {view.array.shape}",
                argument=buffer.name,
                index=view.array_index(box.first),
            )
        self._check(kind, buffer, Piece(box), access)

    def _check_lanes(self, kind: Kind, pointer: Pointer, mask: Tensor | None, access: Access) -> None:
        self._check_allocation(pointer, mask, access)
        buffer = pointer.buffer
        offset = pointer.offset.reshape(-1) if mask is None else pointer.offset[mask]
        outside = ~self._shadow(buffer).owned(buffer)[offset]
        if bool(outside.any()):
            raise OutsideArrayError(
                self.site(access),
                f"outside the array, of shape {tuple(buffer.tensor.shape)}",
                argument=buffer.name,
                index=buffer.index(int(offset[outside][0])),
            )
        self._check(kind, buffer, Lanes(offset), access)

    def _check(self, kind: Kind, buffer: Buffer, place: Place, access: Access) -> None:
        if access.atomic:
            kind = Kind.ATOMIC_READ if kind is Kind.READ else Kind.ATOMIC
        if kind is Kind.WRITE and not place.are_distinct():
            self._raise_duplicate(buffer, place, access)
        shadow = self._shadow(buffer)
        aliased = shadow.find_alias(kind, buffer, place)
        if aliased is not None:
            raise AliasError(
                self.site(access),
                f"argument '{aliased.other}' is here too, and one of the two is written",
                argument=buffer.name,
                index=buffer.index(aliased.offset),
            )
        if access.acquire:
            self._history.acquire(buffer, place)
        race = shadow.find_race(kind, buffer, place, self._history)
        if race is not None:
            other = self._history.block_of(race.segment)
            raise RaceError(
                self.site(access),
                f"this block {kind.value} what block {other} {race.other}, and nothing orders the two",
                other_block=other,
                argument=buffer.name,
                index=buffer.index(race.offset),
            )
        shadow.remember(kind, buffer, place, self._history)
        if access.release:
            self._history.release(buffer, place)

    def _raise_duplicate(self, buffer: Buffer, place: Place, access: Access) -> None:
        in_order = torch.sort(place.offsets()).values
        twice = in_order[1:][in_order[1:] == in_order[:-1]]
        raise DuplicateStoreError(
            self.site(access),
            "two lanes of this store write to one address",
            argument=buffer.name,
            index=buffer.index(int(twice[0])),
        )

    def _shadow(self, buffer: Buffer) -> Shadow:
        return self._shadows[buffer.storage]
