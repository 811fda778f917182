"""Softmax over the last dimension."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import long_rows, tiles
from tilegym_cutile.rows import (
    MOST_COLUMNS,
    RowConfig,
    as_rows,
    chunked_row_configs,
    grid,
    next_power_of_2,
    previous_power_of_2,
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


def _lowest(COLUMNS: Any) -> Any:
    """A maximum and a sum: the lowest finite number, since -inf - -inf is NaN, where only padding was seen."""
    return ct.full((1, COLUMNS), _LOWEST, dtype=ct.float32), ct.zeros((1, COLUMNS), dtype=ct.float32)


def _joined(state: Any, loaded: Any) -> Any:
    """Maxima and sums with a group's logits among them: the sums are rescaled as the maxima grow."""
    (peak, total), (logits,) = state, loaded
    higher = ct.maximum(peak, ct.astype(ct.max(logits, axis=0, keepdims=True), ct.float32))
    weights = tiles.exp_term(ct.astype(logits, ct.float32) - higher)
    return higher, total * tiles.exp_term(peak - higher) + ct.sum(weights, axis=0, keepdims=True)


def _scale(state: Any, dtype: Any) -> Any:
    peak, total = state
    highest = ct.max(peak, axis=1, keepdims=True)
    scale = tiles.reciprocal(ct.sum(total * tiles.exp_term(peak - highest), axis=1, keepdims=True))
    return highest, scale * tiles.exp_unit(dtype)


def _weights(loaded: Any, found: Any, dtype: Any) -> Any:
    (logits,), (highest, scale) = loaded, found
    return tiles.exp_over_unit(ct.astype(logits, ct.float32) - highest, dtype) * scale


softmax_chunks = long_rows.kernel("softmax_chunks", _lowest, _joined, _scale, _weights, padding=-math.inf)


def _nothing(COLUMNS: Any) -> Any:
    return ct.zeros((1, COLUMNS), dtype=ct.float32)


def _with_products(total: Any, loaded: Any) -> Any:
    gradient, weights = loaded
    return total + ct.sum(ct.astype(gradient, ct.float32) * ct.astype(weights, ct.float32), axis=0, keepdims=True)


def _sum(total: Any, dtype: Any) -> Any:  # noqa: ARG001 - all functions of `long_rows.kernel` are called alike
    return ct.sum(total, axis=1, keepdims=True)


def _gradient(loaded: Any, mean: Any, dtype: Any) -> Any:  # noqa: ARG001 - likewise
    gradient, weights = loaded
    return ct.astype(weights, ct.float32) * (ct.astype(gradient, ct.float32) - mean)


softmax_backward_chunks = long_rows.kernel(
    "softmax_backward_chunks", _nothing, _with_products, _sum, _gradient, padding=0.0
)


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
        return long_rows.heuristic(n)
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
    m, n = y_rows.shape
    config = heuristic(m, n, x.element_size(), target_of(x), chunked=use_chunked)
    if config.chunked:
        long_rows.run(softmax_chunks, (x_rows,), y_rows, config)
    else:
        blocks, more = grid(-(-m // config.rows))
        sizes = (n, config.tile(vector(x_rows, y_rows)), *config.ragged(m, n, more=more))
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


def backward_search_space(m: int, n: int, target: Target) -> Iterator[RowConfig]:
    """What is worth trying."""
    columns = next_power_of_2(n)
    if columns <= MOST_COLUMNS:
        yield from whole_row_configs(m, columns, target.num_sms, tiles=2)
    if columns >= MOST_COLUMNS // 2:
        yield from chunked_row_configs(previous_power_of_2(n), (1024, 2048, 4096))


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
        return long_rows.heuristic(n)
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
        long_rows.run(softmax_backward_chunks, arrays[:2], arrays[2], config)
    else:
        blocks, more = grid(-(-m // config.rows))
        sizes = (n, config.tile(vector(*arrays)), *config.ragged(m, n, more=more))
        launch(softmax_backward_rows, blocks, (*arrays, *sizes), hints=config.hints)
    return dx
