"""What the kernels of the row ops share: reading and writing tiles of an array seen as rows.

Tile code, called from kernels only. An array is `(*outer, *inner)` as `rows.as_rows` makes it; where a side has several
dimensions, a row's or a column's number is taken apart to index them.
"""

from __future__ import annotations

from typing import Any

import cuda.tile as ct

Rows = ct.IndexedWithInt64[ct.Array]
"""Annotation of array parameters: shapes and strides beyond 2^31, at no cost, as offsets are 64 bits wide anyhow."""


def row_numbers(tile: Any, count: int) -> Any:
    """The rows of the tile-th tile of `count` rows: (count, 1), int64 since there may be more than 2^31."""
    return ct.astype(tile, ct.int64) * count + ct.arange(count, dtype=ct.int64)[:, None]


def tile_numbers(block: Any, column_tiles: Any, rows: int, columns: int) -> Any:
    """The rows (rows, 1) and columns (1, columns) of a block's tile, tiles being counted along columns first."""
    row = row_numbers(block // column_tiles, rows)
    column = row_numbers(block % column_tiles, columns)
    return row, column.reshape((1, columns))


def load(array: Any, row: Any, column: Any, *, check: bool, padding: float = 0.0, inner: int = 1) -> Any:
    """The elements at (row, column), in float32; `padding` past an end, which only `check` allows."""
    index = _index(array, row, column, inner)
    return ct.astype(ct.gather(array, index, padding_value=padding, check_bounds=check), ct.float32)


def store(array: Any, row: Any, column: Any, value: Any, *, check: bool, inner: int = 1) -> None:
    """Write `value`, rounded to the array's dtype, at (row, column); nothing past an end, which only `check` allows."""
    index = _index(array, row, column, inner)
    ct.scatter(array, index, ct.astype(value, array.dtype), check_bounds=check)


def _index(array: Any, row: Any, column: Any, inner: int) -> Any:
    outer = array.ndim - inner
    return _unravel(row, array.shape[:outer]) + _unravel(column, array.shape[outer:])


def _unravel(number: Any, shape: Any) -> Any:
    """The row-major index of a number in `shape`; past the end, it is past the end of dimension 0."""
    index: Any = ()
    for d in ct.static_iter(range(len(shape) - 1, 0, -1)):
        index = (number % shape[d], *index)
        number = number // shape[d]
    return (number, *index)
