"""Softmax over the last dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.rows import MOST_COLUMNS, RowConfig, as_rows, next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor

_LOWEST = torch.finfo(torch.float32).min
_LANES = 2048


@ct.kernel
def softmax_rows(
    x: Rows,
    y: Rows,
    N: int,
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: ROWS whole rows. x: (*outer, N), y: (M, N), N <= COLUMNS."""
    row = tiles.row_numbers(ct.bid(0), ROWS)
    column = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    mask = tiles.both(tiles.inside(row, y.shape[0], RAGGED_ROWS), tiles.inside(column, N, RAGGED_COLUMNS))
    logits = tiles.load(x, row, column, mask, padding=-math.inf)
    weights = tiles.exp(logits - ct.max(logits, axis=1, keepdims=True), y.dtype)
    scale = tiles.reciprocal(ct.sum(weights, axis=1, keepdims=True))
    tiles.store(y, row, column, weights * scale, mask)


@ct.kernel
def softmax_chunks(
    x: Rows, y: Rows, N: int, DEPTH: ct.Constant[int], LANES: ct.Constant[int], RAGGED: ct.Constant[bool]
) -> None:
    """One block: one row, read twice in chunks of DEPTH * LANES columns. x: (*outer, N), y: (M, N).

    Each lane keeps the maximum and the sum of its own columns, rescaled as the maximum grows, so that lanes meet only
    once per row. A lane starts from the lowest finite number: from minus infinity, a lane that has seen only padding
    would compute -inf - -inf = NaN.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(DEPTH, dtype=ct.int32)[:, None] * LANES + ct.arange(LANES, dtype=ct.int32)[None, :]
    peak = ct.full((1, LANES), _LOWEST, dtype=ct.float32)
    total = ct.zeros((1, LANES), dtype=ct.float32)
    for start in range(0, N, DEPTH * LANES):
        column = start + lane
        logits = tiles.load(x, row, column, tiles.inside(column, N, RAGGED), padding=-math.inf)
        higher = ct.maximum(peak, ct.max(logits, axis=0, keepdims=True))
        weights = tiles.exp_term(logits - higher)
        total = total * tiles.exp_term(peak - higher) + ct.sum(weights, axis=0, keepdims=True)
        peak = higher
    highest = ct.max(peak, axis=1, keepdims=True)
    scale = tiles.reciprocal(ct.sum(total * tiles.exp_term(peak - highest), axis=1, keepdims=True))
    for start in range(0, N, DEPTH * LANES):
        column = start + lane
        mask = tiles.inside(column, N, RAGGED)
        logits = tiles.load(x, row, column, mask)
        tiles.store(y, row, column, tiles.exp(logits - highest, y.dtype) * scale, mask)


def heuristic(m: int, n: int, target: Target, *, chunked: bool | None = None) -> RowConfig:
    """The configuration for m rows of n columns."""
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS or chunked:
        return RowConfig(chunked=True, rows=1, columns=min(columns, 8192), hints=Hints(num_worker_warps=8))
    return RowConfig(
        chunked=False,
        rows=rows_per_block(m, columns, 4096, target.num_sms),
        columns=columns,
        hints=Hints(num_worker_warps=8 if columns >= 16384 else None),
    )


@register_impl("softmax", backend="cutile")
def softmax(
    x: Tensor,
    use_tma: bool = False,  # noqa: ARG001 - a hint of the contract: gathers are faster for data read once
    *,
    use_chunked: bool | None = None,
    use_multi_wave: bool | None = None,  # noqa: ARG001 - a hint of the contract: blocks never walk over rows here
) -> Tensor:
    """See `tilegym/specs/softmax.py`."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    x_rows, y_rows = as_rows(x), as_rows(y)
    m, n = y_rows.shape
    config = heuristic(m, n, target_of(x), chunked=use_chunked)
    ragged = config.ragged(m, n)
    if config.chunked:
        lanes = min(_LANES, config.columns)
        depth = config.columns // lanes
        launch(softmax_chunks, (m,), (x_rows, y_rows, n, depth, lanes, ragged[1]), hints=config.hints)
    else:
        grid = (-(-m // config.rows),)
        launch(softmax_rows, grid, (x_rows, y_rows, n, config.rows, config.columns, *ragged), hints=config.hints)
    return y


@ct.kernel
def softmax_backward_rows(
    dy: Rows,
    y: Rows,
    dx: Rows,
    N: int,
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: ROWS whole rows of dx = y * (dy - sum(dy * y)). dy, y: (*outer, N), dx: (M, N), N <= COLUMNS."""
    row = tiles.row_numbers(ct.bid(0), ROWS)
    column = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    mask = tiles.both(tiles.inside(row, dx.shape[0], RAGGED_ROWS), tiles.inside(column, N, RAGGED_COLUMNS))
    weights = tiles.load(y, row, column, mask)
    gradient = tiles.load(dy, row, column, mask)
    mean = ct.sum(gradient * weights, axis=1, keepdims=True)
    tiles.store(dx, row, column, weights * (gradient - mean), mask)


@ct.kernel
def softmax_backward_chunks(
    dy: Rows, y: Rows, dx: Rows, N: int, COLUMNS: ct.Constant[int], RAGGED: ct.Constant[bool]
) -> None:
    """One block: one row, read twice in chunks of COLUMNS. Arrays as in `softmax_backward_rows`."""
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    products = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for start in range(0, N, COLUMNS):
        column = start + lane
        mask = tiles.inside(column, N, RAGGED)
        products += tiles.load(dy, row, column, mask) * tiles.load(y, row, column, mask)
    mean = ct.sum(products, axis=1, keepdims=True)
    for start in range(0, N, COLUMNS):
        column = start + lane
        mask = tiles.inside(column, N, RAGGED)
        weights = tiles.load(y, row, column, mask)
        tiles.store(dx, row, column, weights * (tiles.load(dy, row, column, mask) - mean), mask)


def backward_heuristic(m: int, n: int, target: Target) -> RowConfig:
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
    dx = torch.empty(output.shape, dtype=output.dtype, device=output.device)
    if dx.numel() == 0:
        return dx
    arrays = (as_rows(grad_output), as_rows(output), as_rows(dx))
    m, n = arrays[-1].shape
    config = backward_heuristic(m, n, target_of(output))
    ragged = config.ragged(m, n)
    if config.chunked:
        launch(softmax_backward_chunks, (m,), (*arrays, n, config.columns, ragged[1]), hints=config.hints)
    else:
        grid = (-(-m // config.rows),)
        launch(softmax_backward_rows, grid, (*arrays, n, config.rows, config.columns, *ragged), hints=config.hints)
    return dx
