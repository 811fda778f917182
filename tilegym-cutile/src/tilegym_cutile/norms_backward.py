"""Norms over the last dimensions, backward: all gradients in one pass over rows that fit in registers.

With g = dy * (offset + weight) and normed = (x - mean) * rstd, each row of

    dx = (g - mean of g over the row - normed * mean of g * normed over the row) * rstd

where a root-mean-square norm lacks the second term, as it has no mean. The gradients of weight and bias are sums of
dy * normed and of dy over all rows: a block goes through many rows and leaves float32 sums of its own, which
`sum_rows` adds up, in a fixed order and without atomics.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym_cutile import tiles
from tilegym_cutile.norms import affine
from tilegym_cutile.reductions import sum_rows
from tilegym_cutile.rows import (
    MOST_COLUMNS,
    RowConfig,
    as_split_rows,
    fits_registers,
    next_power_of_2,
    optional_rows,
    rows_per_block,
)
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@ct.kernel
def norm_backward_rows(
    dy: Rows,
    x: Rows,
    weight: tuple[Rows, ...],
    mean: tuple[Rows, ...],
    rstd: Rows,
    dx: tuple[Rows, ...],
    dweight: tuple[Rows, ...],
    dbias: tuple[Rows, ...],
    N: int,
    per_column: float,
    offset: tuple[float, ...],
    INNER: ct.Constant[tuple[int, int]],
    FIXED: ct.Constant[bool],
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    AHEAD: ct.Constant[bool],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[int],
) -> None:
    """One block: a COLUMNS wide strip of every num_blocks(0)-th tile of ROWS rows; for dx, unless FIXED, whole rows.

    dy, x: (*outer, *inner) of INNER inner dimensions each, weight: (1, *inner), mean, rstd: (M, 1), dx: (M, N),
    dweight, dbias: (num_blocks(0), N) float32 sums over the block's rows. Those that may be absent come in tuples.
    per_column = 1 / N. FIXED: mean and rstd are constants, not functions of x. AHEAD: the next tile is loaded before
    this one is reduced, so that memory is never idle.
    """
    M = rstd.shape[0]
    end = ct.cdiv(M, ROWS)
    column = (ct.bid(1) * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32))[None, :]
    column_mask = tiles.inside(column, N, RAGGED_COLUMNS)
    weight_sum = ct.zeros((1, COLUMNS), dtype=ct.float32)
    bias_sum = ct.zeros((1, COLUMNS), dtype=ct.float32)
    if AHEAD:
        dy_next, x_next = _load(dy, x, ct.bid(0), M, column, column_mask, INNER, ROWS, RAGGED_ROWS)
    for tile in range(ct.bid(0), end, ct.num_blocks(0)):
        if AHEAD:
            dy_tile, x_tile = dy_next, x_next
            following = min(tile + ct.num_blocks(0), end - 1)
            dy_next, x_next = _load(dy, x, following, M, column, column_mask, INNER, ROWS, RAGGED_ROWS)
        else:
            dy_tile, x_tile = _load(dy, x, tile, M, column, column_mask, INNER, ROWS, RAGGED_ROWS)
        row = tiles.row_numbers(tile, ROWS)
        row_mask = tiles.inside(row, M, RAGGED_ROWS)
        inverse = tiles.load(rstd, row, 0, row_mask)
        gradient = ct.astype(dy_tile, ct.float32)
        normed = _normed(ct.astype(x_tile, ct.float32), mean, inverse, row, row_mask)
        for array in ct.static_iter(dx):
            scaled = affine(gradient, weight, (), offset, column, column_mask)
            if not FIXED:
                slope = ct.sum(scaled * normed, axis=1, keepdims=True) * per_column
                level = ct.sum(scaled, axis=1, keepdims=True) * per_column if len(mean) else 0.0
                scaled = scaled - level - normed * slope
            tiles.store(array, row, column, scaled * inverse, tiles.both(row_mask, column_mask))
        for _ in ct.static_iter(dweight):
            weight_sum += ct.sum(gradient * normed, axis=0, keepdims=True)
        for _ in ct.static_iter(dbias):
            bias_sum += ct.sum(gradient, axis=0, keepdims=True)
    for array in ct.static_iter(dweight):
        tiles.store(array, ct.bid(0), column, weight_sum, column_mask)
    for array in ct.static_iter(dbias):
        tiles.store(array, ct.bid(0), column, bias_sum, column_mask)


def _load(
    dy: Any, x: Any, tile: Any, M: Any, column: Any, column_mask: Any, INNER: Any, ROWS: int, RAGGED_ROWS: bool
) -> Any:
    """A tile of dy and of x, in their own dtypes: while they wait they take up fewer registers so."""
    row = tiles.row_numbers(tile, ROWS)
    mask = tiles.both(tiles.inside(row, M, RAGGED_ROWS), column_mask)
    return (
        tiles.load_as_stored(dy, row, column, mask, inner=INNER[0]),
        tiles.load_as_stored(x, row, column, mask, inner=INNER[1]),
    )


@ct.kernel
def norm_backward_chunks(
    dy: Rows,
    x: Rows,
    weight: tuple[Rows, ...],
    mean: tuple[Rows, ...],
    rstd: Rows,
    dx: Rows,
    N: int,
    per_column: float,
    offset: tuple[float, ...],
    INNER: ct.Constant[tuple[int, int]],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[int],
) -> None:
    """One block: one row of dx, in two passes over chunks of COLUMNS, forwards and backwards.

    Arrays as in `norm_backward_rows`.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    inverse = tiles.load(rstd, row, 0, None)
    chunks = ct.cdiv(N, COLUMNS)
    slopes = ct.zeros((1, COLUMNS), dtype=ct.float32)
    levels = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for chunk in range(chunks):
        column = chunk * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        scaled = affine(tiles.load(dy, row, column, mask, inner=INNER[0]), weight, (), offset, column, mask)
        slopes += scaled * _normed(tiles.load(x, row, column, mask, inner=INNER[1]), mean, inverse, row, None)
        for _ in ct.static_iter(mean):
            levels += scaled
    slope = ct.sum(slopes, axis=1, keepdims=True) * per_column
    level = ct.sum(levels, axis=1, keepdims=True) * per_column if len(mean) else 0.0
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        scaled = affine(tiles.load(dy, row, column, mask, inner=INNER[0]), weight, (), offset, column, mask)
        normed = _normed(tiles.load(x, row, column, mask, inner=INNER[1]), mean, inverse, row, None)
        tiles.store(dx, row, column, (scaled - level - normed * slope) * inverse, mask)


def _normed(values: Any, mean: Any, inverse: Any, row: Any, row_mask: Any) -> Any:
    """(x - mean) * rstd. Where x is padding it may be anything finite: the gradient beside it is 0."""
    for array in ct.static_iter(mean):
        values = values - tiles.load(array, row, 0, row_mask)
    return values * inverse


@dataclass(frozen=True, kw_only=True, slots=True)
class BackwardConfig(RowConfig):
    """How the backward goes about rows."""

    blocks_per_sm: int
    """How many blocks for each SM share all rows; each leaves sums of its own for weight and bias."""
    ahead: bool
    """Whether a block loads a tile before it is done with the one before."""


_TAKEN_APART = 1024
"""Elements of a tile whose columns' numbers are taken apart to index several dimensions: each has its own address."""


def search_space(m: int, n: int, itemsize: int, target: Target, *, inner: int) -> Iterator[BackwardConfig]:
    """What is worth trying: two tiles are held at once, and two more as they are stored if loaded ahead."""
    columns = next_power_of_2(n)
    if inner > 1:
        return
    if columns > MOST_COLUMNS // 2:
        for width, warps in itertools.product((1024, 2048, 4096), (4, 8)):
            hints = Hints(num_worker_warps=warps)
            yield BackwardConfig(chunked=True, rows=1, columns=width, blocks_per_sm=1, ahead=False, hints=hints)
        return
    for elements, warps, blocks, ahead in itertools.product((2048, 4096, 8192), (4, 8), (1, 2, 4), (True, False)):
        rows = rows_per_block(m, columns, elements, target.num_sms)
        held = rows * columns * (2 + (itemsize // 2 if ahead else 0))
        if fits_registers(held, warps, blocks):
            yield BackwardConfig(
                chunked=False,
                rows=rows,
                columns=columns,
                blocks_per_sm=blocks,
                ahead=ahead,
                hints=Hints(num_worker_warps=warps),
            )


@tuned("norm_backward", space=search_space, bucketed=("m",))
def backward_heuristic(m: int, n: int, itemsize: int, target: Target, *, bare: bool, inner: int) -> BackwardConfig:
    """How dx goes about m rows of n columns: so that enough is being loaded at any time, and registers suffice.

    Of 16-bit elements more is held or loaded ahead, if `bare`: without mean and bias. `inner` dimensions make up a row.
    """
    columns, lean = next_power_of_2(n), itemsize == 2 and bare
    if columns > (MOST_COLUMNS // 2 if inner == 1 else _TAKEN_APART):
        width, hints = 4096 if inner == 1 else _TAKEN_APART, Hints(num_worker_warps=8)
        return BackwardConfig(chunked=True, rows=1, columns=width, blocks_per_sm=1, ahead=False, hints=hints)
    if lean and columns <= 4096:
        elements, blocks, warps = (8192 if columns <= 1024 else 4096), 2, 4
    else:
        elements, blocks, warps = (8192, 1, 8) if columns >= 2048 else (4096, 2, 4)
    return BackwardConfig(
        chunked=False,
        rows=rows_per_block(m, columns, elements if inner == 1 else _TAKEN_APART, target.num_sms),
        columns=columns,
        blocks_per_sm=blocks,
        ahead=columns < 8192 or lean,
        hints=Hints(num_worker_warps=warps),
    )


def strip_heuristic(*, inner: int) -> BackwardConfig:
    """How a strip of columns goes about rows, where none is needed whole; `inner` as in `backward_heuristic`."""
    rows, hints = 8 if inner == 1 else 1, Hints(num_worker_warps=4)
    return BackwardConfig(chunked=True, rows=rows, columns=1024, blocks_per_sm=4, ahead=False, hints=hints)


def gradients(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor,
    offset: float,
    needs: tuple[bool, bool, bool],
    *,
    fixed: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, weight and bias, from that of the output; None for those not in `needs`, or not given.

    x, weight, bias and offset are as `norms.normalize` took them, mean and rstd as it filled them; without mean it was
    a root-mean-square norm. With `fixed`, both were given and are constants. The sums over rows are float32, in a fixed
    order, and rounded once.
    """
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    summed = (weight if needs[1] else None, bias if needs[2] else None)
    if x.numel() == 0:
        dweight, dbias = (None if like is None else torch.zeros_like(like) for like in summed)
        return dx, dweight, dbias
    columns, m = x.dim() - rstd.dim(), rstd.numel()
    n = x.numel() // m
    (dy_rows, dy_inner), (x_rows, x_inner) = as_split_rows(dy, columns), as_split_rows(x, columns)
    statistics = (optional_rows(mean, 0), as_split_rows(rstd, 0)[0])
    arrays = (dy_rows, x_rows, optional_rows(weight, columns), *statistics)
    constants = (n, 1 / n, (offset,) if offset else (), (dy_inner, x_inner))
    inner = max(dy_inner, x_inner)
    if fixed:
        strips = strip_heuristic(inner=inner)
        return dx, *_launch_rows(arrays, optional_rows(dx, columns), summed, (*constants, True), strips)
    dx_rows = optional_rows(dx, columns)
    bare = mean is None and summed[1] is None
    config = backward_heuristic(m, n, x.element_size(), target_of(x), bare=bare, inner=inner)
    if config.chunked:
        for rows in dx_rows:
            args = (*arrays, rows, *constants, config.columns, config.ragged(m, n)[1])
            launch(norm_backward_chunks, (m,), args, hints=config.hints)
        dweight, dbias = _launch_rows(arrays, (), summed, (*constants, False), strip_heuristic(inner=inner))
    else:
        dweight, dbias = _launch_rows(arrays, dx_rows, summed, (*constants, False), config)
    return dx, dweight, dbias


def _launch_rows(
    arrays: tuple[Any, ...],
    dx: tuple[Tensor, ...],
    summed: tuple[Tensor | None, Tensor | None],
    constants: tuple[Any, ...],
    config: BackwardConfig,
) -> tuple[Tensor | None, Tensor | None]:
    """Fill dx, if given, and return the sums for weight and bias, each like its tensor in `summed`."""
    m, n = arrays[-1].shape[0], constants[0]
    across = -(-n // config.columns)
    blocks = min(-(-m // config.rows), max(1, config.blocks_per_sm * target_of(arrays[0]).num_sms // across))
    partials: list[tuple[Tensor, ...]] = [
        () if like is None else (torch.empty(blocks, n, dtype=torch.float32, device=like.device),) for like in summed
    ]
    if dx or any(partials):
        args = (*arrays, dx, *partials, *constants, config.rows, config.columns, config.ahead, *config.ragged(m, n))
        launch(norm_backward_rows, (blocks, across), args, hints=config.hints)
    totals = iter(sum_rows(sum(partials, ()), [like for like in summed if like is not None]))
    dweight, dbias = (None if like is None else next(totals) for like in summed)
    return dweight, dbias
