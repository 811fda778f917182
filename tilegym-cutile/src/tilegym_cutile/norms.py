"""Norms over the last dimensions, forward: root-mean-square norm and layer norm, which subtracts the mean first.

Both read a row once where it fits in registers, and twice, in chunks, where it does not. The backward is in
`norms_backward.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym_cutile import tiles
from tilegym_cutile.rows import (
    MOST_COLUMNS,
    RowConfig,
    as_split_rows,
    chunked_row_configs,
    grid,
    next_power_of_2,
    optional_rows,
    rows_per_block,
    vector,
    whole_row_configs,
)
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@ct.kernel
def norm_rows(
    x: Rows,
    weight: tuple[Rows, ...],
    bias: tuple[Rows, ...],
    y: Rows,
    mean: tuple[Rows, ...],
    rstd: tuple[Rows, ...],
    N: int,
    per_column: float,
    eps: float,
    offset: tuple[float, ...],
    CENTERED: ct.Constant[bool],
    INNER: ct.Constant[int],
    TILE: ct.Constant[tuple[int, int, int]],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[int],
) -> None:
    """One block: the whole rows of a TILE; per_column = 1 / N, CENTERED: layer norm.

    x: (*outer, *inner) of INNER inner dimensions, weight, bias: (1, *inner), y: (M, N), mean, rstd: (M, 1). Those that
    may be absent come in tuples.
    """
    row, column = tiles.whole_rows(tiles.block(), TILE)
    column = ct.broadcast_to(column, TILE)  # rows load weight and bias apart, and need not wait
    row_mask, column_mask = tiles.inside(row, y.shape[0], RAGGED_ROWS), tiles.inside(column, N, RAGGED_COLUMNS)
    mask = tiles.both(row_mask, column_mask)
    values = tiles.load(x, row, column, mask, inner=INNER)
    if CENTERED:
        first = 0.0
        if x.dtype == ct.float32:  # of shorter dtypes, two numbers that differ do so by more than the sum's error
            first = tiles.load(x, row, 0, row_mask, inner=INNER)
            values = tiles.masked(values - first, column_mask)
        middle = tiles.sum_of_row(values) * per_column
        values = tiles.masked(values - middle, column_mask)
    inverse = ct.rsqrt(tiles.sum_of_row(values * values) * per_column + eps)
    scale, shift = parameters(weight, column, column_mask), parameters(bias, column, column_mask)
    tiles.store(y, row, column, affine(values * inverse, scale, shift, offset), mask)
    for array in ct.static_iter(mean):
        tiles.store(array, row, 0, first + middle + 0.0 * inverse, row_mask)  # NaN where the row is not finite
    for array in ct.static_iter(rstd):
        tiles.store(array, row, 0, inverse, row_mask)


@ct.kernel
def norm_chunks(
    x: Rows,
    weight: tuple[Rows, ...],
    bias: tuple[Rows, ...],
    y: Rows,
    mean: tuple[Rows, ...],
    rstd: tuple[Rows, ...],
    given: tuple[Rows, ...],
    N: int,
    eps: float,
    offset: tuple[float, ...],
    CENTERED: ct.Constant[bool],
    INNER: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[int],
) -> None:
    """One block: one row, in two passes over chunks of COLUMNS. Arrays as in `norm_rows`.

    The second pass goes backwards: what was read last is still in the cache. It is the only one if mean and rstd are
    `given`.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    chunks = ct.cdiv(N, COLUMNS)
    if len(given):
        first, middle, inverse = tiles.load(given[0], row, 0, None), 0.0, tiles.load(given[1], row, 0, None)
        center = first
    else:
        first, middle, squares = _statistics(x, row, lane, N, CENTERED, INNER, COLUMNS, RAGGED)
        inverse = ct.rsqrt(squares / N + eps)
        center = first + middle + 0.0 * inverse  # NaN where the row is not finite
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        values = tiles.load(x, row, column, mask, inner=INNER) - first - middle
        scale, shift = parameters(weight, column, mask), parameters(bias, column, mask)
        tiles.store(y, row, column, affine(values * inverse, scale, shift, offset), mask)
    for array in ct.static_iter(mean):
        tiles.store(array, row, 0, center, None)
    for array in ct.static_iter(rstd):
        tiles.store(array, row, 0, inverse, None)


def _statistics(
    x: Any, row: Any, lane: Any, N: Any, CENTERED: bool, INNER: int, COLUMNS: int, RAGGED: int
) -> tuple[Any, Any, Any]:
    """A row's first element and the mean's distance from it, and the sum of squared deviations from the mean.

    In one pass, by Welford's recurrence in each lane, and Chan's formula where lanes meet. Without CENTERED the mean
    counts as 0.
    """
    middle = ct.zeros((1, COLUMNS), dtype=ct.float32)
    squares = ct.zeros((1, COLUMNS), dtype=ct.float32)
    first = tiles.load(x, row, 0, None, inner=INNER) if CENTERED else 0.0
    for chunk in range(ct.cdiv(N, COLUMNS)):
        column = chunk * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        values = tiles.load(x, row, column, mask, inner=INNER)
        if CENTERED:
            values = values - first
            change = tiles.masked(values - middle, mask)
            middle += change * (1.0 / (chunk + 1))
            squares += change * (values - middle)
        else:
            squares += values * values
    if not CENTERED:
        return first, 0.0, ct.sum(squares, axis=1, keepdims=True)
    count = ct.astype(ct.cdiv(ct.maximum(N - lane, 0), COLUMNS), ct.float32)
    whole = ct.sum(count * middle, axis=1, keepdims=True) / N
    apart = middle - whole
    return first, whole, ct.sum(squares + count * apart * apart, axis=1, keepdims=True)


def parameters(arrays: Any, column: Any, mask: Any) -> Any:
    """Tiles of weight or bias, as they are stored: as many as there are arrays. Tile code."""
    found: Any = ()
    for array in ct.static_iter(arrays):
        found = (*found, tiles.load_as_stored(array, 0, column, mask, inner=array.ndim - 1))
    return found


def affine(values: Any, weight: Any, bias: Any, offset: Any) -> Any:
    """The values * (offset + weight) + bias, of tiles, where no weight counts as ones; the others may be absent."""
    scale = 1.0
    for tile in ct.static_iter(weight):
        scale = ct.astype(tile, ct.float32)
    for number in ct.static_iter(offset):
        scale = scale + number
    values = values * scale
    for tile in ct.static_iter(bias):
        values = values + ct.astype(tile, ct.float32)
    return values


def search_space(m: int, n: int, target: Target, *, chunked: bool) -> Iterator[RowConfig]:
    """What is worth trying; medium rows in chunks too, since whole ones leave room for few blocks."""
    columns = next_power_of_2(n)
    if columns <= MOST_COLUMNS and not chunked:
        yield from whole_row_configs(m, columns, target.num_sms)
    if columns >= MOST_COLUMNS // 2 or chunked:
        yield from chunked_row_configs(columns, (2048, 4096, 8192))


@tuned("norm", space=search_space, bucketed=("m",))
def heuristic(
    m: int,
    n: int,
    itemsize: int,
    target: Target,
    *,
    centered: bool,
    inner: int,
    chunked: bool = False,
) -> RowConfig:
    """The configuration for m rows of n columns, of `inner` dimensions, from what an H200 likes.

    No block goes through several tiles, to load weight and bias once: such a loop costs too many registers.
    """
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS or chunked:
        width = min(columns, 4096 if centered else 8192)
        return RowConfig(chunked=True, rows=1, columns=width, hints=Hints(num_worker_warps=8))
    if centered:
        occupancy, warps = {4096: (8, 4), 8192: (4, 8), 16384: (None, 8)}.get(columns, (4, 4))
    elif columns == 4096 and n < columns:
        occupancy, warps = 8, 4
    else:
        occupancy, warps = {4096: (4, 8), 8192: (None, 4), 16384: (None, 8)}.get(columns, (4, 4))
    elements = max(4096, 4 * columns) if columns <= (2048 if centered else 1024) else columns
    rows = rows_per_block(m, columns, elements, target.num_sms)
    aligned = n * itemsize % 16 == 0  # else each element has an address of its own
    if m <= rows * target.num_sms:  # one block an SM: all registers are its own
        occupancy, warps = None, 8 if columns > 4096 else 4
    elif inner > 1:  # each element has several indices too
        occupancy = None
    elif occupancy and not aligned:
        occupancy //= 2
    hints = Hints(occupancy=occupancy, num_worker_warps=warps)
    return RowConfig(chunked=False, rows=rows, columns=columns, hints=hints)


def normalize(
    x: Tensor,
    columns: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    offset: float,
    *,
    centered: bool,
    chunked: bool = False,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
    given: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The norm of x over its last `columns` dimensions, times offset + weight, plus bias; of x's dtype, contiguous.

    It is layer norm if `centered`, and root-mean-square norm if not. `chunked` goes through rows in chunks, however
    short they are. `mean` and `rstd`, from `empty_statistic`, are filled if they are there: with what was computed, or
    with the mean and rstd that are `given`.
    """
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    x_rows, inner = as_split_rows(x, columns)
    y_rows, _ = as_split_rows(y, columns)
    m, n = y_rows.shape
    if m == 0 or (n == 0 and given is None):
        return y
    statistics = (optional_rows(one, 0) for one in (mean, rstd))
    arrays = (x_rows, optional_rows(weight, columns), optional_rows(bias, columns), y_rows, *statistics)
    chunked = chunked or given is not None
    config = heuristic(m, n, x.element_size(), target_of(x), centered=centered, inner=inner, chunked=chunked)
    args = (eps, (offset,) if offset else (), centered, inner)
    if config.chunked:
        used = () if given is None else tuple(as_split_rows(one, 0)[0] for one in given)
        sizes: tuple[Any, ...] = (config.columns, config.ragged(m, n)[1])
        launch(norm_chunks, (m,), (*arrays, used, n, *args, *sizes), hints=config.hints)
    else:
        blocks, more = grid(-(-m // config.rows))
        tile = config.tile(vector(x_rows, y_rows) if inner == 1 else 1)
        sizes = (tile, *config.ragged(m, n, more=more))
        launch(norm_rows, blocks, (*arrays, n, 1 / n, *args, *sizes), hints=config.hints)
    return y


def empty_statistic(x: Tensor, columns: int) -> Tensor:
    """One float32 for each row of x, whose last `columns` dimensions make a row; 0 for rows without elements."""
    make = torch.empty if x.numel() else torch.zeros
    return make(size=x.shape[: x.dim() - columns], dtype=torch.float32, device=x.device)
