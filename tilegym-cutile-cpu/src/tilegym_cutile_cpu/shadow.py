"""Who used each address: the memory of the sanitizer.

Blocks run one after another here, but on a GPU two blocks are ordered only by atomic operations: what a block did
before a *release* at some address comes before what another does after an *acquire* there. So a block's work is cut
into segments, a new one after each release, and a block knows which segments of others come before what it does now.
An address remembers the segments that used it last. Using it is a race unless those come before.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilegym_cutile_cpu.values import scalar

if TYPE_CHECKING:
    from tilegym_cutile_cpu.arrays import Box, Buffer
    from tilegym_cutile_cpu.errors import BlockId


class Kind(enum.Enum):
    """How an address is used; the value is what a message says of it."""

    READ = "reads"
    WRITE = "writes"
    ATOMIC = "updates atomically"
    ATOMIC_READ = "reads atomically"


@dataclass(frozen=True)
class Conflict:
    """Two uses that may not meet.

    offset: the element of the storage.
    other: what the earlier use was: a verb, or the name of the other argument.
    segment: the segment of the earlier use.
    """

    offset: int
    other: str
    segment: int = 0


class History:
    """The segments so far, and which of them come before what happens now. Segment 0 is before the launch."""

    def __init__(self) -> None:
        self._blocks: list[BlockId] = [(0, 0, 0)]
        self._before = torch.zeros(64, dtype=torch.bool)
        self._mine = torch.zeros(64, dtype=torch.bool)
        self._before[0] = self._mine[0] = True
        self._own: list[int] = []
        self._acquired = False
        self._released: dict[tuple[int, int], Tensor] = {}

    @property
    def now(self) -> int:
        return len(self._blocks) - 1

    def begin_block(self, block: BlockId) -> None:
        if self._acquired:
            self._before[1:] = False
        for segment in self._own:
            self._before[segment] = self._mine[segment] = False
        self._own, self._acquired = [], False
        self._begin_segment(block)

    def _begin_segment(self, block: BlockId) -> None:
        self._blocks.append(block)
        if self.now >= self._before.numel():
            self._before = torch.cat((self._before, torch.zeros_like(self._before)))
            self._mine = torch.cat((self._mine, torch.zeros_like(self._mine)))
        self._own.append(self.now)
        self._before[self.now] = self._mine[self.now] = True

    def block_of(self, segment: int) -> BlockId:
        return self._blocks[segment]

    def unordered(self, segments: Tensor) -> Tensor:
        """Which of `segments` do not come before now."""
        return ~self._before.index_select(0, segments)

    def others(self, segments: Tensor) -> Tensor:
        """Which of `segments` are not of the block that runs now."""
        return ~self._mine.index_select(0, segments)

    def acquire(self, buffer: Buffer, place: Place) -> None:
        for address in _addresses(buffer, place):
            released = self._released.get(address)
            if released is not None:
                self._before[: released.numel()] |= released
                self._acquired = True

    def release(self, buffer: Buffer, place: Place) -> None:
        so_far = self._before[: self.now + 1].clone()
        for address in _addresses(buffer, place):
            earlier = self._released.get(address)
            known = so_far.clone()
            if earlier is not None:
                known[: earlier.numel()] |= earlier
            self._released[address] = known
        self._begin_segment(self._blocks[self.now])


def _addresses(buffer: Buffer, place: Place) -> list[tuple[int, int]]:
    storage, size = buffer.storage, buffer.flat.element_size()
    return [(storage, element * size) for element in place.offsets().tolist()]


@dataclass(frozen=True)
class Lanes:
    """Elements of a storage, named one by one."""

    offset: Tensor

    def of(self, table: Tensor) -> Tensor:
        return table[self.offset]

    def put(self, table: Tensor, value: Tensor | int) -> None:
        table[self.offset] = value

    def offsets(self) -> Tensor:
        return self.offset

    def are_distinct(self) -> bool:
        in_order = torch.sort(self.offset).values
        return bool((in_order[1:] != in_order[:-1]).all())


@dataclass(frozen=True)
class Piece:
    """Elements of a storage that form a strided box: quicker than naming each."""

    box: Box

    def of(self, table: Tensor) -> Tensor:
        return self.box.of(table)

    def put(self, table: Tensor, value: Tensor | int) -> None:
        """Where the box has a stride of 0, all that shares an address gets one value: the first will do."""
        once = tuple(slice(1) if stride == 0 else slice(None) for stride in self.box.strides)
        self.box.of(table)[once] = value[once] if isinstance(value, Tensor) else value

    def offsets(self) -> Tensor:
        offset = scalar(self.box.offset)
        for size, stride in zip(self.box.shape, self.box.strides, strict=True):
            offset = offset.unsqueeze(-1) + torch.arange(size) * stride
        return offset.reshape(-1)

    def are_distinct(self) -> bool:
        dims = sorted((stride, size) for stride, size in zip(self.box.strides, self.box.shape, strict=True) if size > 1)
        reach = 0
        for stride, size in dims:
            if stride <= reach:
                return Lanes(self.offsets()).are_distinct()
            reach += stride * (size - 1)
        return True


Place = Lanes | Piece


class Shadow:
    """What the sanitizer knows of one storage. It is cut into cells, as small as the smallest element stored there."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._cell = 0
        self._groups: list[str] = []
        self._owned: dict[str, Tensor] = {}
        self._tables: dict[str, Tensor] = {}

    def add(self, buffer: Buffer) -> None:
        size = buffer.flat.element_size()
        self._cell = min(self._cell or size, size)
        if buffer.group not in self._groups:
            self._groups.append(buffer.group)

    def owned(self, buffer: Buffer) -> Tensor:
        """Which elements of the storage belong to the argument."""
        if buffer.name not in self._owned:
            mask = torch.zeros(buffer.flat.numel(), dtype=torch.bool)
            tensor = buffer.tensor
            mask.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
            self._owned[buffer.name] = mask
        return self._owned[buffer.name]

    def find_race(self, kind: Kind, buffer: Buffer, place: Place, history: History) -> Conflict | None:
        place = self._cells_of(buffer, place)
        for what in _RACES_WITH[kind]:
            if what not in self._tables:
                continue
            segments = place.of(self._tables[what]).reshape(-1)
            unordered = history.unordered(segments)
            if bool(unordered.any()):
                first = int(unordered.nonzero()[0])
                return Conflict(self._offset(buffer, place, first), _VERB[what], int(segments[first]))
        return None

    def remember(self, kind: Kind, buffer: Buffer, place: Place, history: History) -> None:
        place = self._cells_of(buffer, place)
        if kind is Kind.READ:
            last, earlier = place.of(self._table("reader")), place.of(self._table("earlier_reader"))
            foreign = history.others(last.reshape(-1)).reshape(last.shape)
            place.put(self._table("earlier_reader"), torch.where(foreign, last, earlier))
        if kind in _TABLE:
            place.put(self._table(_TABLE[kind]), history.now)
        if len(self._groups) > 1:
            table = self._table("written" if kind in (Kind.WRITE, Kind.ATOMIC) else "read")
            place.put(table, place.of(table) | 1 << self._groups.index(buffer.group))

    def find_alias(self, kind: Kind, buffer: Buffer, place: Place) -> Conflict | None:
        """Another argument at one of these addresses, where one of the two is written."""
        if len(self._groups) == 1:
            return None
        place = self._cells_of(buffer, place)
        users = place.of(self._table("written"))
        if kind in (Kind.WRITE, Kind.ATOMIC):
            users = users | place.of(self._table("read"))
        others = (users & ~(1 << self._groups.index(buffer.group))).reshape(-1)
        if not bool(others.any()):
            return None
        first = int(others.nonzero()[0])
        return Conflict(self._offset(buffer, place, first), self._groups[int(others[first]).bit_length() - 1])

    def _cells_of(self, buffer: Buffer, place: Place) -> Place:
        ratio = buffer.flat.element_size() // self._cell
        return place if ratio == 1 else Lanes((place.offsets().unsqueeze(-1) * ratio + torch.arange(ratio)).reshape(-1))

    def _offset(self, buffer: Buffer, place: Place, position: int) -> int:
        return int(place.offsets()[position]) // (buffer.flat.element_size() // self._cell)

    def _table(self, what: str) -> Tensor:
        """Per cell: the segment that used it last (0: none yet), or the arguments that used it as bits."""
        if what not in self._tables:
            self._tables[what] = torch.zeros(self._nbytes // self._cell, dtype=torch.int32)
        return self._tables[what]


_TABLE = {Kind.READ: "reader", Kind.WRITE: "writer", Kind.ATOMIC: "atomic"}
_RACES_WITH = {
    Kind.READ: ("writer", "atomic"),
    Kind.ATOMIC_READ: ("writer",),
    Kind.WRITE: ("writer", "atomic", "reader", "earlier_reader"),
    Kind.ATOMIC: ("writer", "reader", "earlier_reader"),
}
_VERB = {
    "writer": "writes",
    "atomic": "updates atomically",
    "reader": "reads",
    "earlier_reader": "reads",
}
