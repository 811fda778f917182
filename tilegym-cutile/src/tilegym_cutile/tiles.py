"""What the kernels of the row ops share: reading and writing tiles of an array seen as rows.

Tile code, called from kernels only. An array is `(*outer, *inner)` as `rows.as_rows` makes it; where a side has several
dimensions, a row's or a column's number is taken apart to index them.
"""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct

Rows = ct.IndexedWithInt64[ct.Array]
"""Annotation of array parameters: shapes and strides beyond 2^31, at no cost, as offsets are 64 bits wide anyhow."""

Divisor = tuple[ct.ScalarInt64[int], ct.ScalarInt64[int], ct.ScalarInt64[int]]
"""Annotation of what `rows.divisor` makes."""

LOG2E = math.log2(math.e)
_RAISED = 64.0


def row_numbers(tile: Any, rows: int) -> Any:
    """The rows of the tile-th tile of `rows`: (rows, 1), int64 since there may be more than 2^31."""
    return (ct.astype(tile, ct.int64) * rows + ct.arange(rows, dtype=ct.int64))[:, None]


def whole_rows(number: Any, TILE: tuple[int, int, int]) -> Any:
    """The numbers of the rows and of the columns of a tile of whole rows, as `rows.RowConfig.tile` shapes it."""
    ROWS, PARTS, SPAN = TILE
    column = (ct.arange(PARTS, dtype=ct.int32) * SPAN)[:, None] + ct.arange(SPAN, dtype=ct.int32)[None, :]
    return row_numbers(number, ROWS)[:, :, None], column[None, :, :]


def sum_of_row(x: Any) -> Any:
    """The sum of each row of a tile of whole rows."""
    return ct.sum(ct.sum(x, axis=1, keepdims=True), axis=2, keepdims=True)


def sums_of_row(x: Any, y: Any) -> Any:
    """`sum_of_row` of two tiles at once: threads that share a row meet only as often as for one."""
    parts = ct.reduce((x, y), 1, _add, (0.0, 0.0), keepdims=True)
    return ct.reduce(parts, 2, _add, (0.0, 0.0), keepdims=True)


def _add(x: Any, y: Any, more_x: Any, more_y: Any) -> Any:
    return x + more_x, y + more_y


def block() -> Any:
    """Which block of a `rows.grid` this is: the first dimension's number would cost a division before any load."""
    return ct.bid(1) + ct.bid(2) * ct.num_blocks(1)


def place(M: Any, N: Any, across: Any, ROWS: Any, COLUMNS: Any, RAGGED_ROWS: Any, RAGGED_COLUMNS: Any) -> Any:
    """Where the block's tile lies in M rows of N columns, `across` tiles making up a row: rows, columns and mask."""
    down, along = divided(block(), across)
    row, column = row_numbers(down, ROWS), row_numbers(along, COLUMNS).reshape((1, COLUMNS))
    return row, column, both(inside(row, M, RAGGED_ROWS), inside(column, N, RAGGED_COLUMNS))


def divided(number: Any, by: Any) -> Any:
    """The quotient and the remainder of a number below 2^31 by a `rows.divisor`."""
    count, factor, shift = by
    number = ct.astype(number, ct.uint32)
    high = ct.astype(ct.astype(number, ct.uint64) * ct.astype(factor, ct.uint64) >> 32, ct.uint32)
    quotient = (high + number) >> ct.astype(shift, ct.uint32)
    return quotient, number - quotient * ct.astype(count, ct.uint32)


def inside(number: Any, end: Any, ragged: int) -> Any:
    """Which of the numbers are below `end`; None, all of them, unless the last tile is ragged.

    `ragged` is 0 or False, or divides the end: neighbours that share a mask so are loaded and stored together.
    """
    if ragged > 1:
        end = ct.assume_divisible_by(end, ragged)
    return number < end if ragged else None


def both(mask: Any, other: Any) -> Any:
    """Where both masks hold, None being a mask that holds everywhere."""
    if mask is None:
        return other
    if other is None:
        return mask
    return mask & other


def masked(value: Any, mask: Any) -> Any:
    """`value` where the mask holds, 0 elsewhere."""
    return value if mask is None else ct.where(mask, value, 0.0)


def load(array: Any, row: Any, column: Any, mask: Any, *, padding: float = 0.0, inner: int = 1) -> Any:
    """The elements at (row, column), in float32; `padding` where they are masked out."""
    return ct.astype(load_as_stored(array, row, column, mask, padding=padding, inner=inner), ct.float32)


def load_as_stored(array: Any, row: Any, column: Any, mask: Any, *, padding: float = 0.0, inner: int = 1) -> Any:
    """The same in the array's own dtype: of 16 bits, it takes half of the registers to keep."""
    index = _index(array, row, column, inner)
    return ct.gather(array, index, mask=mask, padding_value=padding, check_bounds=False)


def store(array: Any, row: Any, column: Any, value: Any, mask: Any, *, inner: int = 1) -> None:
    """Write `value`, rounded to the array's dtype, to (row, column); nothing where they are masked out."""
    index = _index(array, row, column, inner)
    ct.scatter(array, index, ct.astype(value, array.dtype), mask=mask, check_bounds=False)


def exp_over_unit(x: Any, dtype: Any) -> Any:
    """Powers of e, over `exp_unit(dtype)`, as precise as results of `dtype` deserve.

    For shorter dtypes than float32 the unit is so small that the cheap exp2, which flushes what is below 2^-126, loses
    nothing: what underflows does so in the multiplication that follows, which rounds as it should.
    """
    return ct.exp(x) if dtype == ct.float32 else ct.exp2(x * LOG2E + _RAISED, flush_to_zero=True)


def exp_unit(dtype: Any) -> Any:
    """What `exp_over_unit` has to be multiplied by."""
    return 1.0 if dtype == ct.float32 else 2.0**-_RAISED


def exp_term(x: Any) -> Any:
    """Powers of e as terms of a sum with larger ones: the error grows with -x, and those below 2^-126 are 0."""
    return ct.exp2(x * LOG2E, flush_to_zero=True)


def reciprocal(x: Any) -> Any:
    """1 / x to within 2 units in the last place, and 0 for x beyond 2^126, at a tenth of the cost of a division."""
    return ct.truediv(1.0, x, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)


def _index(array: Any, row: Any, column: Any, inner: int) -> Any:
    outer = array.ndim - inner
    return _unravel(row, array.shape[:outer]) + _unravel(column, array.shape[outer:])


def _unravel(number: Any, shape: Any) -> Any:
    """The row-major index of a number in `shape`."""
    index: Any = ()
    for d in ct.static_iter(range(len(shape) - 1, 0, -1)):
        index = (number % shape[d], *index)
        number = number // shape[d]
    return (number, *index)
