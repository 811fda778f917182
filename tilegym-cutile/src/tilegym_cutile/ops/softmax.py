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
    next_power_of_2,
    rows_per_block,
    whole_row_configs,
)
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_LOWEST = torch.finfo(torch.float32).min
_GROUP_BYTES = 2**15
"""What a block of `softmax_chunks` loads at once, and keeps of its row: two such blocks share an SM's registers."""


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
    weights = tiles.exp_over_unit(logits - ct.max(logits, axis=1, keepdims=True), y.dtype)
    scale = tiles.reciprocal(ct.sum(weights, axis=1, keepdims=True))
    tiles.store(y, row, column, weights * scale, mask)


@ct.kernel
def softmax_chunks(
    x: Rows, y: Rows, N: int, COLUMNS: ct.Constant[int], CHUNKS: ct.Constant[int], RAGGED: ct.Constant[bool]
) -> None:
    """One block: one row, in groups of CHUNKS chunks of COLUMNS. x: (*outer, N), y: (M, N).

    A group's loads are under way together. Each column of a chunk keeps a maximum and a sum of its own, rescaled as the
    maximum grows, so that columns meet only once per row; it starts from the lowest finite number, since a column that
    has seen only padding would compute -inf - -inf = NaN. The last group, which alone may be ragged, is kept in
    registers; the others are read once more, backwards: what was read last is still in the cache.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    last = ct.cdiv(N, CHUNKS * COLUMNS) - 1
    peak = ct.full((1, COLUMNS), _LOWEST, dtype=ct.float32)
    total = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for group in range(last):
        peak, total = _joined(peak, total, _group(x, row, group * CHUNKS, lane, N, CHUNKS, False))
    kept = _group(x, row, last * CHUNKS, lane, N, CHUNKS, RAGGED)
    peak, total = _joined(peak, total, kept)
    highest = ct.max(peak, axis=1, keepdims=True)
    scale = tiles.reciprocal(ct.sum(total * tiles.exp_term(peak - highest), axis=1, keepdims=True))
    scale = scale * tiles.exp_unit(y.dtype)
    _store_group(y, row, last * CHUNKS, lane, N, kept, highest, scale, RAGGED)
    for turn in range(last):
        first = (last - 1 - turn) * CHUNKS
        _store_group(y, row, first, lane, N, _group(x, row, first, lane, N, CHUNKS, False), highest, scale, False)


def _group(x: Any, row: Any, first: Any, lane: Any, n: Any, chunks: Any, ragged: Any) -> Any:
    """The logits of so many chunks from the first one, as they are stored."""
    group: Any = ()
    for chunk in ct.static_iter(range(chunks)):
        column = (first + chunk) * lane.shape[1] + lane
        group = (*group, tiles.load_as_stored(x, row, column, tiles.inside(column, n, ragged), padding=-math.inf))
    return group


def _joined(peak: Any, total: Any, group: Any) -> Any:
    """Maxima and sums with a group's logits among them."""
    largest = group[0]
    for logits in ct.static_iter(group[1:]):
        largest = ct.maximum(largest, logits)
    higher = ct.maximum(peak, ct.astype(largest, ct.float32))
    total = total * tiles.exp_term(peak - higher)
    for logits in ct.static_iter(group):
        total = total + tiles.exp_term(ct.astype(logits, ct.float32) - higher)
    return higher, total


def _store_group(
    y: Any, row: Any, first: Any, lane: Any, n: Any, group: Any, highest: Any, scale: Any, ragged: Any
) -> None:
    for chunk in ct.static_iter(range(len(group))):
        column = (first + chunk) * lane.shape[1] + lane
        weights = tiles.exp_over_unit(ct.astype(group[chunk], ct.float32) - highest, y.dtype)
        tiles.store(y, row, column, weights * scale, tiles.inside(column, n, ragged))


def search_space(m: int, n: int, target: Target, *, chunked: bool | None) -> Iterator[RowConfig]:
    """What is worth trying; medium rows in chunks too, since whole ones leave room for few blocks."""
    columns = next_power_of_2(n)
    if columns <= MOST_COLUMNS and not chunked:
        yield from whole_row_configs(m, columns, target.num_sms)
    if columns >= MOST_COLUMNS // 2 or chunked:
        yield from chunked_row_configs(columns, (1024, 2048, 4096))


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
        occupancy = 2 if target.capability < (10, 0) else None  # newer chips would spill registers
        hints = Hints(occupancy=occupancy, num_worker_warps=8)
        return RowConfig(chunked=True, rows=1, columns=min(columns, 2048), hints=hints)
    rows = rows_per_block(m, columns, 4096, target.num_sms)
    return RowConfig(
        chunked=False, rows=rows, columns=columns, hints=Hints(num_worker_warps=8 if columns >= 8192 else None)
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
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return y
    x_rows, y_rows = as_rows(x), as_rows(y)
    m, n = y_rows.shape
    config = heuristic(m, n, x.element_size(), target_of(x), chunked=use_chunked)
    if config.chunked:
        vectors = all(a.stride(-1) == 1 and a.stride(0) * a.element_size() % 16 == 0 for a in (x_rows, y_rows))
        group = _GROUP_BYTES if vectors else _GROUP_BYTES // 4  # element by element, there are loads enough
        chunks = min(-(-n // config.columns), group // (config.columns * x.element_size()))
        ragged = n % (chunks * config.columns) != 0
        launch(softmax_chunks, (m,), (x_rows, y_rows, n, config.columns, chunks, ragged), hints=config.hints)
    else:
        grid = (-(-m // config.rows),)
        sizes = (n, config.rows, config.columns, *config.ragged(m, n))
        launch(softmax_rows, grid, (x_rows, y_rows, *sizes), hints=config.hints)
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
    ragged = config.ragged(m, n)
    if config.chunked:
        launch(softmax_backward_chunks, (m,), (*arrays, n, config.columns, ragged[1]), hints=config.hints)
    else:
        grid = (-(-m // config.rows),)
        launch(softmax_backward_rows, grid, (*arrays, n, config.rows, config.columns, *ragged), hints=config.hints)
    return dx
