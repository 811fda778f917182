"""Softmax over the last dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.rows import (
    MOST_COLUMNS,
    RowConfig,
    as_rows,
    chunked_row_configs,
    grid,
    next_power_of_2,
    previous_power_of_2,
    ragged,
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

_LOWEST = torch.finfo(torch.float32).min
_GROUP_REGISTERS = 2**14
"""Those of what an SM's blocks of `softmax_chunks` load at once: two of it, this and the next, fill half of them."""


@ct.kernel
def softmax_rows(
    x: Rows,
    y: Rows,
    N: int,
    TILE: ct.Constant[tuple[int, int, int]],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[int],
) -> None:
    """One block: the whole rows of a TILE. x: (*outer, N), y: (M, N)."""
    row, column = tiles.whole_rows(tiles.block(), TILE)
    mask = tiles.both(tiles.inside(row, y.shape[0], RAGGED_ROWS), tiles.inside(column, N, RAGGED_COLUMNS))
    logits = tiles.load(x, row, column, mask, padding=-math.inf)
    peak = ct.max(ct.max(logits, axis=1, keepdims=True), axis=2, keepdims=True)
    weights = tiles.exp_over_unit(logits - peak, y.dtype)
    scale = tiles.reciprocal(tiles.sum_of_row(weights))
    tiles.store(y, row, column, weights * scale, mask)


@ct.kernel
def softmax_chunks(
    x: Rows,
    y: Rows,
    N: int,
    groups: int,
    CHUNKS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[int],
) -> None:
    """One block: every num_blocks(0)-th row, in groups of CHUNKS chunks of COLUMNS. x: (*outer, N), y: (M, N).

    There are so many whole groups, at least one, and if RAGGED a rest. Each column of a chunk keeps a maximum and a sum
    of its own, rescaled as the maximum grows, so that columns meet only once per row; it starts from the lowest finite
    number, since a column that has seen only padding would compute -inf - -inf = NaN.

    The next group, of this row or the next one, is always being loaded. The last of a row is kept in registers; the
    others are read once more, backwards: what was read last is still in the cache, where few rows at a time have room.
    """
    M = y.shape[0]
    lane = (ct.arange(CHUNKS, dtype=ct.int32) * COLUMNS)[:, None] + ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    width, rest = CHUNKS * COLUMNS, groups * (CHUNKS * COLUMNS) + lane
    following = tiles.load_as_stored(x, tiles.row_numbers(ct.bid(0), 1), lane, None)
    for number in range(ct.bid(0), M, ct.num_blocks(0)):
        row = tiles.row_numbers(number, 1)
        peak = ct.full((1, COLUMNS), _LOWEST, dtype=ct.float32)
        total = ct.zeros((1, COLUMNS), dtype=ct.float32)
        if RAGGED:
            inside = tiles.inside(rest, N, RAGGED)
            peak, total = _joined(peak, total, tiles.load_as_stored(x, row, rest, inside, padding=-math.inf))
        logits = following
        for group in range(1, groups):
            following = tiles.load_as_stored(x, row, group * width + lane, None)
            peak, total = _joined(peak, total, logits)
            logits = following
        peak, total = _joined(peak, total, logits)
        highest = ct.max(peak, axis=1, keepdims=True)
        scale = tiles.reciprocal(ct.sum(total * tiles.exp_term(peak - highest), axis=1, keepdims=True))
        scale = scale * tiles.exp_unit(y.dtype)
        for turn in range(1, groups):
            group = groups - 1 - turn
            following = tiles.load_as_stored(x, row, group * width + lane, None)
            _store(y, row, (group + 1) * width + lane, logits, highest, scale, None)
            logits = following
        following = tiles.load_as_stored(x, tiles.row_numbers(min(number + ct.num_blocks(0), M - 1), 1), lane, None)
        _store(y, row, lane, logits, highest, scale, None)
        if RAGGED:
            logits = tiles.load_as_stored(x, row, rest, inside, padding=-math.inf)
            _store(y, row, rest, logits, highest, scale, inside)


def _joined(peak: Any, total: Any, logits: Any) -> Any:
    """Maxima and sums with a group's logits among them."""
    higher = ct.maximum(peak, ct.astype(ct.max(logits, axis=0, keepdims=True), ct.float32))
    weights = tiles.exp_term(ct.astype(logits, ct.float32) - higher)
    return higher, total * tiles.exp_term(peak - higher) + ct.sum(weights, axis=0, keepdims=True)


def _store(y: Any, row: Any, column: Any, logits: Any, highest: Any, scale: Any, mask: Any) -> None:
    weights = tiles.exp_over_unit(ct.astype(logits, ct.float32) - highest, y.dtype)
    tiles.store(y, row, column, weights * scale, mask)


def search_space(m: int, n: int, target: Target, *, chunked: bool | None) -> Iterator[RowConfig]:
    """What is worth trying; medium rows in chunks too, since whole ones leave room for few blocks."""
    columns = next_power_of_2(n)
    if columns <= MOST_COLUMNS and not chunked:
        yield from whole_row_configs(m, columns, target.num_sms)
    if columns >= MOST_COLUMNS // 2 or chunked:
        yield from chunked_row_configs(previous_power_of_2(n), (1024, 2048, 4096))


@tuned("softmax", space=search_space, bucketed=("m",))
def heuristic(
    m: int,
    n: int,
    itemsize: int,  # noqa: ARG001 - tells tuned configurations apart
    target: Target,
    *,
    chunked: bool | None = None,
) -> RowConfig:
    """The configuration for m rows of n columns, from what an H200 likes."""
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS or chunked:
        # Where there is a rest, which is loaded apart, another block had better be at work meanwhile.
        hints = Hints(occupancy=2 if n % (2 * _GROUP_REGISTERS) else 1, num_worker_warps=8)
        return RowConfig(chunked=True, rows=1, columns=min(previous_power_of_2(n), 2048), hints=hints)
    rows = rows_per_block(m, columns, 4096, target.num_sms)
    hints = Hints(
        occupancy=3 if columns == MOST_COLUMNS and target.capability[0] == 9 else None,
        num_worker_warps=8 if columns >= 8192 else None,
    )
    return RowConfig(chunked=False, rows=rows, columns=columns, hints=hints)


@register_impl("softmax", backend="cutile")
def softmax(
    x: Tensor,
    use_tma: bool = False,  # noqa: ARG001 - a hint of the contract: gathers are faster for data read once
    *,
    use_chunked: bool | None = None,
    use_multi_wave: bool | None = None,  # noqa: ARG001 - a hint of the contract: blocks walk over long rows alone
) -> Tensor:
    """See `tilegym/specs/softmax.py`."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return y
    x_rows, y_rows = as_rows(x), as_rows(y)
    (m, n), wide = y_rows.shape, vector(x_rows, y_rows)
    config = heuristic(m, n, x.element_size(), target_of(x), chunked=use_chunked)
    if config.chunked:
        packed = max(1, 4 // x.element_size()) if wide > 1 else 1  # elements in a register
        at_once = _GROUP_REGISTERS // (config.hints.occupancy or 1) * packed
        chunks = previous_power_of_2(max(1, min(n, at_once) // config.columns))
        width = chunks * config.columns
        sizes: tuple[Any, ...] = (n, n // width, chunks, config.columns, ragged(n, width))
        launch(softmax_chunks, (min(m, 2 * target_of(x).num_sms),), (x_rows, y_rows, *sizes), hints=config.hints)
    else:
        blocks, more = grid(-(-m // config.rows))
        sizes = (n, config.tile(wide), *config.ragged(m, n, more=more))
        launch(softmax_rows, blocks, (x_rows, y_rows, *sizes), hints=config.hints)
    return y


@ct.kernel
def softmax_backward_rows(
    dy: Rows,
    y: Rows,
    dx: Rows,
    N: int,
    TILE: ct.Constant[tuple[int, int, int]],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[int],
) -> None:
    """One block: the whole rows of a TILE, dx = y * (dy - sum(dy * y)). dy, y: (*outer, N), dx: (M, N)."""
    row, column = tiles.whole_rows(tiles.block(), TILE)
    mask = tiles.both(tiles.inside(row, dx.shape[0], RAGGED_ROWS), tiles.inside(column, N, RAGGED_COLUMNS))
    weights = tiles.load(y, row, column, mask)
    gradient = tiles.load(dy, row, column, mask)
    tiles.store(dx, row, column, weights * (gradient - tiles.sum_of_row(gradient * weights)), mask)


@ct.kernel
def softmax_backward_chunks(
    dy: Rows, y: Rows, dx: Rows, N: int, COLUMNS: ct.Constant[int], RAGGED: ct.Constant[int]
) -> None:
    """One block: one row, read forwards, then backwards, in chunks of COLUMNS. Arrays as in `softmax_backward_rows`."""
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    chunks = ct.cdiv(N, COLUMNS)
    products = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for chunk in range(chunks):
        column = chunk * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        products += tiles.load(dy, row, column, mask) * tiles.load(y, row, column, mask)
    mean = ct.sum(products, axis=1, keepdims=True)
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        weights = tiles.load(y, row, column, mask)
        tiles.store(dx, row, column, weights * (tiles.load(dy, row, column, mask) - mean), mask)


def backward_search_space(m: int, n: int, target: Target) -> Iterator[RowConfig]:
    """What is worth trying."""
    columns = next_power_of_2(n)
    if columns <= MOST_COLUMNS:
        yield from whole_row_configs(m, columns, target.num_sms, tiles=2)
    if columns >= MOST_COLUMNS // 2:
        yield from chunked_row_configs(columns, (1024, 2048, 4096))


@tuned("softmax_backward", space=backward_search_space, bucketed=("m",))
def backward_heuristic(
    m: int,
    n: int,
    itemsize: int,  # noqa: ARG001 - tells tuned configurations apart
    target: Target,
) -> RowConfig:
    """The backward's configuration for m rows of n columns: two tiles to hold rather than one."""
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS:
        return RowConfig(chunked=True, rows=1, columns=4096, hints=Hints(num_worker_warps=8))
    return RowConfig(
        chunked=False,
        rows=rows_per_block(m, columns, 2048, target.num_sms),
        columns=columns,
        hints=Hints(num_worker_warps=8 if columns >= 8192 else None),
    )


@register_backward("softmax", backend="cutile")
def softmax_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """The gradient of the input, from that of the output and the output itself; of the output's dtype, contiguous."""
    dx = torch.empty_like(output, memory_format=torch.contiguous_format)
    if dx.numel() == 0:
        return dx
    arrays = (as_rows(grad_output), as_rows(output), as_rows(dx))
    m, n = arrays[-1].shape
    config = backward_heuristic(m, n, output.element_size(), target_of(output))
    if config.chunked:
        args = (*arrays, n, config.columns, ragged(n, config.columns))
        launch(softmax_backward_chunks, (m,), args, hints=config.hints)
    else:
        blocks, more = grid(-(-m // config.rows))
        sizes = (n, config.tile(vector(*arrays)), *config.ragged(m, n, more=more))
        launch(softmax_backward_rows, blocks, (*arrays, *sizes), hints=config.hints)
    return dx
