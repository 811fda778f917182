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
from tilegym_cutile.norms import affine, parameters
from tilegym_cutile.reductions import sum_rows
from tilegym_cutile.rows import (
    RowConfig,
    as_split_rows,
    fits_registers,
    next_power_of_2,
    optional_rows,
    rows_per_block,
    vector,
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
    TILE: ct.Constant[tuple[int, int, int]],
    AHEAD: ct.Constant[bool],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[int],
) -> None:
    """One block: a strip, as wide as a TILE, of every num_blocks(0)-th tile of rows; for dx, unless FIXED, whole rows.

    dy, x: (*outer, *inner) of INNER inner dimensions each, weight: (1, *inner), mean, rstd: (M, 1), dx: (M, N),
    dweight, dbias: (num_blocks(0), N) float32 sums over the block's rows. Those that may be absent come in tuples.
    per_column = 1 / N. FIXED: mean and rstd are constants, not functions of x. AHEAD: the next tile is loaded before
    this one is reduced, so that memory is never idle.

    Each row of a tile has sums of its own for dweight and dbias, so that rows meet only once, at the end.
    """
    ROWS, PARTS, SPAN = TILE
    end = ct.cdiv(rstd.shape[0], ROWS)
    column = ct.bid(1) * (PARTS * SPAN) + tiles.whole_rows(0, TILE)[1]
    column_mask = tiles.inside(column, N, RAGGED_COLUMNS)

    def load(tile: Any) -> Any:
        """Of dy and x as they are stored, which takes fewer registers while they wait; and the rows' statistics."""
        row = tiles.row_numbers(tile, ROWS)[:, :, None]
        row_mask = tiles.inside(row, rstd.shape[0], RAGGED_ROWS)
        mask = tiles.both(row_mask, column_mask)
        dy_tile = tiles.load_as_stored(dy, row, column, mask, inner=INNER[0])
        x_tile = tiles.load_as_stored(x, row, column, mask, inner=INNER[1])
        return dy_tile, x_tile, _center(mean, row, row_mask), tiles.load(rstd, row, 0, row_mask)

    weight_sum = ct.zeros(TILE, dtype=ct.float32)
    bias_sum = ct.zeros(TILE, dtype=ct.float32)
    if AHEAD:
        following = load(ct.bid(0))
    for tile in range(ct.bid(0), end, ct.num_blocks(0)):
        if AHEAD:
            dy_tile, x_tile, center, inverse = following
            following = load(min(tile + ct.num_blocks(0), end - 1))
        else:
            dy_tile, x_tile, center, inverse = load(tile)
        row = tiles.row_numbers(tile, ROWS)[:, :, None]
        row_mask = tiles.inside(row, rstd.shape[0], RAGGED_ROWS)
        gradient = ct.astype(dy_tile, ct.float32)
        normed = _normed(ct.astype(x_tile, ct.float32), center, inverse)
        for array in ct.static_iter(dx):
            scaled = affine(gradient, parameters(weight, column, column_mask), (), offset)
            scaled = scaled if FIXED else _without_means(scaled, normed, mean, per_column)
            tiles.store(array, row, column, scaled * inverse, tiles.both(row_mask, column_mask))
        for _ in ct.static_iter(dweight):
            weight_sum += gradient * normed
        for _ in ct.static_iter(dbias):
            bias_sum += gradient
    for array in ct.static_iter(dweight):
        tiles.store(array, ct.bid(0), column, ct.sum(weight_sum, axis=0, keepdims=True), column_mask)
    for array in ct.static_iter(dbias):
        tiles.store(array, ct.bid(0), column, ct.sum(bias_sum, axis=0, keepdims=True), column_mask)


def _center(mean: Any, row: Any, row_mask: Any) -> Any:
    """The rows' means, in a tuple as the array is."""
    found: Any = ()
    for array in ct.static_iter(mean):
        found = (*found, tiles.load(array, row, 0, row_mask))
    return found


def _without_means(scaled: Any, normed: Any, mean: Any, per_column: Any) -> Any:
    """Of each row g, less normed * the mean of g * normed, and less the mean of g if the norm takes the mean off."""
    if len(mean):
        slope, level = tiles.sums_of_row(scaled * normed, scaled)
        scaled = scaled - level * per_column
    else:
        slope = tiles.sum_of_row(scaled * normed)
    return scaled - normed * (slope * per_column)


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
    center, inverse = _center(mean, row, None), tiles.load(rstd, row, 0, None)
    chunks = ct.cdiv(N, COLUMNS)
    slopes = ct.zeros((1, COLUMNS), dtype=ct.float32)
    levels = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for chunk in range(chunks):
        column = chunk * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        scaled = affine(tiles.load(dy, row, column, mask, inner=INNER[0]), parameters(weight, column, mask), (), offset)
        slopes += scaled * _normed(tiles.load(x, row, column, mask, inner=INNER[1]), center, inverse)
        for _ in ct.static_iter(mean):
            levels += scaled
    slope = ct.sum(slopes, axis=1, keepdims=True) * per_column
    level = ct.sum(levels, axis=1, keepdims=True) * per_column if len(mean) else 0.0
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        scaled = affine(tiles.load(dy, row, column, mask, inner=INNER[0]), parameters(weight, column, mask), (), offset)
        normed = _normed(tiles.load(x, row, column, mask, inner=INNER[1]), center, inverse)
        tiles.store(dx, row, column, (scaled - level - normed * slope) * inverse, mask)


def _normed(values: Any, center: Any, inverse: Any) -> Any:
    """(x - mean) * rstd. Where x is padding it may be anything finite: the gradient beside it is 0."""
    for tile in ct.static_iter(center):
        values = values - tile
    return values * inverse


@dataclass(frozen=True, kw_only=True, slots=True)
class BackwardConfig(RowConfig):
    """How the backward goes about rows."""

    ahead: bool
    """Whether a block loads a tile before it is done with the one before."""

    def blocks(self, m: int, across: int, num_sms: int) -> int:
        """How many blocks share m rows, `across` of them side by side: as many as run at once, if there is work."""
        return min(-(-m // self.rows), max(1, self.hints.at_once(num_sms) // across))


def _elements_per_sm(n: int, itemsize: int, inner: int) -> int:
    """How many elements of dx an SM's registers have room for, with those of dy, x and the sums beside each.

    Fewer where each has an address of its own: rows begin at no multiple of 16 bytes, or have `inner` dimensions.
    """
    if inner > 1:
        return 2048
    return 4096 if n * itemsize % 16 else 8192


def search_space(m: int, n: int, itemsize: int, target: Target, *, inner: int) -> Iterator[BackwardConfig]:
    """What is worth trying: two tiles and two sums are held at once, and what is loaded ahead as it is stored."""
    columns = next_power_of_2(n)
    if inner > 1:
        return
    if columns > _elements_per_sm(n, itemsize, inner):
        for width, warps in itertools.product((1024, 2048, 4096), (4, 8)):
            hints = Hints(num_worker_warps=warps)
            yield BackwardConfig(chunked=True, rows=1, columns=width, ahead=False, hints=hints)
        return
    sizes, blocks = (1024, 2048, 4096, 8192), (1, 2, 3, 4, 6)
    for elements, warps, occupancy, ahead in itertools.product(sizes, (4, 8), blocks, (True, False)):
        rows = rows_per_block(m, columns, elements, target.num_sms)
        held = rows * columns * (4 + (itemsize // 2 if ahead else 0))
        if fits_registers(held, warps, occupancy):
            hints = Hints(occupancy=occupancy, num_worker_warps=warps)
            yield BackwardConfig(chunked=False, rows=rows, columns=columns, ahead=ahead, hints=hints)


@tuned("norm_backward", space=search_space, bucketed=("m",))
def backward_heuristic(m: int, n: int, itemsize: int, target: Target, *, bare: bool, inner: int) -> BackwardConfig:
    """How dx goes about m rows of n columns: a thread has 16 of its elements.

    `bare`: without mean and bias, so that more can be loaded ahead. `inner` dimensions make up a row.
    """
    columns, per_sm = next_power_of_2(n), _elements_per_sm(n, itemsize, inner)
    if columns > per_sm:
        width, hints = min(4096, per_sm // 2), Hints(num_worker_warps=8)
        return BackwardConfig(chunked=True, rows=1, columns=width, ahead=False, hints=hints)
    elements = max(columns, 2048 if per_sm == 8192 else 1024)
    return BackwardConfig(
        chunked=False,
        rows=rows_per_block(m, columns, elements, target.num_sms),
        columns=columns,
        ahead=bare + (itemsize == 2) >= (2 if target.capability >= (12, 0) else 1),
        hints=Hints(occupancy=per_sm // elements, num_worker_warps=8 if columns >= 4096 else 4),
    )


def strip_heuristic(n: int, itemsize: int, *, inner: int) -> BackwardConfig:
    """How a strip of n columns goes about rows, where none is needed whole; the others as in `backward_heuristic`."""
    rows = 4 if inner == 1 else 1
    hints = Hints(occupancy=_elements_per_sm(n, itemsize, inner) // (rows * 512), num_worker_warps=4)
    return BackwardConfig(chunked=True, rows=rows, columns=512, ahead=False, hints=hints)


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
        strips = strip_heuristic(n, x.element_size(), inner=inner)
        return dx, *_launch_rows(arrays, optional_rows(dx, columns), summed, (*constants, True), strips)
    dx_rows = optional_rows(dx, columns)
    bare = mean is None and summed[1] is None
    config = backward_heuristic(m, n, x.element_size(), target_of(x), bare=bare, inner=inner)
    if config.chunked:
        for rows in dx_rows:
            args = (*arrays, rows, *constants, config.columns, config.ragged(m, n)[1])
            launch(norm_backward_chunks, (m,), args, hints=config.hints)
        strips = strip_heuristic(n, x.element_size(), inner=inner)
        dweight, dbias = _launch_rows(arrays, (), summed, (*constants, False), strips)
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
    blocks = config.blocks(m, across, target_of(arrays[0]).num_sms)
    partials: list[tuple[Tensor, ...]] = [
        () if like is None else (torch.empty(blocks, n, dtype=torch.float32, device=like.device),) for like in summed
    ]
    if dx or any(partials):
        split_rows = max(constants[-2]) > 1
        tile = config.tile(1 if split_rows else vector(*arrays[:2], *dx))
        args = (*arrays, dx, *partials, *constants, tile, config.ahead, *config.ragged(m, n))
        launch(norm_backward_rows, (blocks, across), args, hints=config.hints)
    totals = iter(sum_rows(sum(partials, ()), [like for like in summed if like is not None]))
    dweight, dbias = (None if like is None else next(totals) for like in summed)
    return dweight, dbias
