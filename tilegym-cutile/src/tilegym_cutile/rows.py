"""What the host code of the row ops shares: seeing a tensor of any layout as rows, and how rows are shared out.

A row op works on (M, N): M rows, all leading dimensions together, of N columns. `as_rows` makes the view, copying
nothing: dimensions are merged where strides allow, and those that do not merge stay separate for the kernel to index
(`tiles.py`). A contiguous tensor becomes (M, N) just so.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilegym_cutile.runtime import Hints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

MOST_COLUMNS = 16384
"""The widest row that fits in one block's registers, in float32, on every architecture."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowConfig:
    """How a block goes about its rows."""

    chunked: bool
    """Whether a row is read several times, a chunk at a time, rather than once and whole."""
    rows: int
    """Rows per block."""
    columns: int
    """Columns a tile spans: a power of two, the whole row or one chunk of it."""
    hints: Hints = Hints()  # noqa: RUF009 - frozen

    def tile(self, vector: int) -> tuple[int, int, int]:
        """A tile of whole rows: (rows, parts, columns of a part).

        A part is what a warp loads at once, a vector a thread, if each warp has rows of its own: reductions then wait
        for no other warp. Else there is one part.
        """
        span = min(self.columns, 32 * vector) if self.rows >= (self.hints.num_worker_warps or 4) else self.columns
        return self.rows, self.columns // span, span

    def ragged(self, m: int, n: int, *, more: bool = False) -> tuple[bool, int]:
        """How tiles stick out of m rows, if only as the `grid` is of more, and of n columns: for `tiles.inside`."""
        return more or m % self.rows != 0, ragged(n, self.columns)


def ragged(n: int, columns: int, *, more: bool = False) -> int:
    """0 if the last tile of so many columns ends where n do, and there are no `more`, or else a divisor of n."""
    return math.gcd(n, 16) if more or n % columns else 0


def vector(*arrays: Tensor) -> int:
    """How many adjacent elements of rows (*outer, N), of one dtype, a thread loads at once: 16 bytes, or just one."""
    size = arrays[-1].element_size()
    for one in arrays:
        *outer, inner = one.stride()
        if inner != 1 or one.storage_offset() * size % 16:
            return 1
        for stride in outer:
            if stride * size % 16:
                return 1
    return 16 // size


def as_rows(tensor: Tensor) -> Tensor:
    """A view (*outer, N) of `tensor` whose leading dimensions are as few as its strides allow, and at least one."""
    return tensor if tensor.dim() == 2 else as_split_rows(tensor, 1)[0]


def as_split_rows(tensor: Tensor, columns: int) -> tuple[Tensor, int]:
    """A view (*outer, *inner) of `tensor` where the last `columns` dimensions make a row, and how many `inner` are.

    Each side has the fewest dimensions that the strides allow, and at least one.
    """
    shape, split = tensor.shape, tensor.dim() - columns
    if split == columns == 1:
        return tensor, 1
    if tensor.is_contiguous():
        m, n = math.prod(shape[:split]), math.prod(shape[split:])
        return tensor.as_strided((m, n), (n, 1)), 1  # a view, at half of the cost of `view`
    dims = list(zip(shape, tensor.stride(), strict=True))
    outer, inner = _merge(dims[:split]), _merge(dims[split:])
    sizes, strides = zip(*outer, *inner, strict=True)
    return tensor.as_strided(sizes, strides), len(inner)


def optional_rows(tensor: Tensor | None, columns: int) -> tuple[Tensor, ...]:
    """A kernel's argument that may be absent, seen as rows: in a tuple, which is empty without it."""
    return () if tensor is None else (as_split_rows(tensor, columns)[0],)


def _merge(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same addresses, in the same order, in as few (size, stride) pairs as possible."""
    merged: list[tuple[int, int]] = []
    for size, stride in dims:
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged or [(1, 1)]


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is at least `n`."""
    return 1 << (n - 1).bit_length()


def previous_power_of_2(n: int) -> int:
    """The largest power of two that is at most `n`."""
    return 1 << (n.bit_length() - 1)


def rows_per_block(m: int, columns: int, elements: int, num_sms: int) -> int:
    """How many rows make a tile of about `elements`, or fewer where m rows would leave SMs without a block."""
    wanted = min(elements // columns, next_power_of_2(-(-m // num_sms)))
    return max(1, wanted)


def divisor(count: int) -> tuple[int, int, int]:
    """A count by which a kernel divides numbers below 2^31 with one product: it, a factor and a shift.

    The quotient of n is (n * factor / 2^32 + n) / 2^shift, rounded down twice: see `tiles.divided`. Granlund and
    Montgomery, "Division by Invariant Integers using Multiplication", 1994.
    """
    shift = (count - 1).bit_length()
    return count, (2**32 * (2**shift - count)) // count + 1, shift


_MOST_BLOCKS = 2**16 - 1
"""Of a grid's second and third dimensions."""


@functools.lru_cache(maxsize=1024)
def grid(blocks: int) -> tuple[tuple[int, int, int], bool]:
    """A grid of so many blocks as kernels number them (`tiles.block`), or of more; and whether it is of more."""
    least = max(1, -(-blocks // _MOST_BLOCKS))
    slabs = next((count for count in range(least, min(2 * least + 8, _MOST_BLOCKS)) if blocks % count == 0), least)
    return (1, -(-blocks // slabs), slabs), blocks % slabs != 0


_REGISTERS = 2**16
"""Of an SM; a thread has at most 255."""
_SPARE = 32
"""Registers of a thread that hold no elements."""


def fits_registers(elements: int, warps: int, occupancy: int | None = None) -> bool:
    """Whether a block can hold so many float32 elements at once, and about so many such blocks fit on an SM."""
    threads = 32 * warps
    return elements // threads + _SPARE <= min(255, _REGISTERS // (threads * (occupancy or 1)))


def whole_row_configs(m: int, columns: int, num_sms: int, *, tiles: int = 1) -> Iterator[RowConfig]:
    """What is worth trying for m whole rows, `columns` wide as tiles are, of which a block holds so many at once."""
    for elements, warps, occupancy in itertools.product((1024, 2048, 4096, 8192), (4, 8), (None, 2, 4, 8)):
        rows = rows_per_block(m, columns, elements, num_sms)
        if fits_registers(tiles * rows * columns, warps, occupancy):
            hints = Hints(occupancy=occupancy, num_worker_warps=warps)
            yield RowConfig(chunked=False, rows=rows, columns=columns, hints=hints)


def chunked_row_configs(columns: int, widths: tuple[int, ...]) -> Iterator[RowConfig]:
    """What is worth trying for rows, whose next power of two is `columns`, in chunks of these widths."""
    for width, warps, occupancy in itertools.product(widths, (4, 8), (None, 2)):
        hints = Hints(occupancy=occupancy, num_worker_warps=warps)
        yield RowConfig(chunked=True, rows=1, columns=min(columns, width), hints=hints)
