"""Root-mean-square normalisation over the last dimensions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Literal

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.reductions import sum_rows
from tilegym_cutile.rows import MOST_COLUMNS, RowConfig, as_split_rows, next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor

    Mode = Literal["static_persistent", "multi_wave_reload", "multi_wave_cached"]


@ct.kernel
def rms_norm_rows(
    x: Rows,
    weight: tuple[Rows, ...],
    bias: tuple[Rows, ...],
    y: Rows,
    rstd: tuple[Rows, ...],
    N: int,
    eps: float,
    offset: float,
    INNER: ct.Constant[int],
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: ROWS whole rows, N <= COLUMNS.

    x: (*outer, *inner) of INNER inner dimensions, weight, bias: (1, *inner), y: (M, N), rstd: (M, 1). Those that may be
    absent come in tuples.
    """
    row = tiles.row_numbers(ct.bid(0), ROWS)
    column = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    row_mask = tiles.inside(row, y.shape[0], RAGGED_ROWS)
    column_mask = tiles.inside(column, N, RAGGED_COLUMNS)
    mask = tiles.both(row_mask, column_mask)
    values = tiles.load(x, row, column, mask, inner=INNER)
    inverse = ct.rsqrt(ct.sum(values * values, axis=1, keepdims=True) / N + eps)
    tiles.store(y, row, column, _affine(values * inverse, weight, bias, offset, column, column_mask), mask)
    for array in ct.static_iter(rstd):
        tiles.store(array, row, 0, inverse, row_mask)


@ct.kernel
def rms_norm_chunks(
    x: Rows,
    weight: tuple[Rows, ...],
    bias: tuple[Rows, ...],
    y: Rows,
    rstd: tuple[Rows, ...],
    N: int,
    eps: float,
    offset: float,
    INNER: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[bool],
) -> None:
    """One block: one row, in two passes over chunks of COLUMNS. Arrays as in `rms_norm_rows`.

    The second pass goes backwards: what was read last is still in the cache.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    chunks = ct.cdiv(N, COLUMNS)
    squares = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for chunk in range(chunks):
        column = chunk * COLUMNS + lane
        values = tiles.load(x, row, column, tiles.inside(column, N, RAGGED), inner=INNER)
        squares += values * values
    inverse = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / N + eps)
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        values = tiles.load(x, row, column, mask, inner=INNER)
        tiles.store(y, row, column, _affine(values * inverse, weight, bias, offset, column, mask), mask)
    for array in ct.static_iter(rstd):
        tiles.store(array, row, 0, inverse, None)


def _affine(values: Any, weight: Any, bias: Any, offset: Any, column: Any, mask: Any) -> Any:
    """The values * (offset + weight) + bias, where no weight counts as ones."""
    scale = offset + 1.0
    for array in ct.static_iter(weight):
        scale = offset + tiles.load(array, 0, column, mask, inner=array.ndim - 1)
    values = values * scale
    for array in ct.static_iter(bias):
        values = values + tiles.load(array, 0, column, mask, inner=array.ndim - 1)
    return values


@functools.lru_cache(maxsize=1024)
def heuristic(m: int, n: int, target: Target, *, mode: Mode | None = None) -> RowConfig:
    """The configuration for m rows of n columns, from what an H200 likes.

    No mode is persistent: a loop over rows costs too many registers.
    """
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS or mode == "multi_wave_reload":
        return RowConfig(chunked=True, rows=1, columns=min(columns, 8192), hints=Hints(num_worker_warps=8))
    occupancy, warps = {4096: (2, 8), 8192: (4, None), 16384: (None, 8)}.get(columns, (None, None))
    return RowConfig(
        chunked=False,
        rows=rows_per_block(m, columns, 1024, target.num_sms),
        columns=columns,
        hints=Hints(occupancy=occupancy, num_worker_warps=warps),
    )


@register_impl("rms_norm", backend="cutile")
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    mode: Mode | None = None,
    *,
    offset: float = 0.0,
) -> Tensor:
    """See `tilegym/specs/rms_norm.py`."""
    y = torch.empty_like(input, memory_format=torch.contiguous_format)
    _launch(input, len(normalized_shape), weight, bias, y, None, (eps, offset), mode)
    return y


def rms_norm_forward(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    mode: Mode | None = None,
    *,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, 1 / root mean square of each row: float32, of the leading dimensions' shape."""
    columns = len(normalized_shape)
    y = torch.empty_like(input, memory_format=torch.contiguous_format)
    rstd = torch.empty(input.shape[: input.dim() - columns], dtype=torch.float32, device=input.device)
    _launch(input, columns, weight, bias, y, rstd, (eps, offset), mode)
    return y, rstd


def _launch(
    x: Tensor,
    columns: int,
    weight: Tensor | None,
    bias: Tensor | None,
    y: Tensor,
    rstd: Tensor | None,
    constants: tuple[float, float],
    mode: Mode | None,
) -> None:
    """Fill y, and rstd if given. `columns`: how many dimensions are normalised; constants: eps and offset."""
    if y.numel() == 0:
        return
    x_rows, inner = as_split_rows(x, columns)
    y_rows, _ = as_split_rows(y, columns)
    m, n = y_rows.shape
    arrays = (
        x_rows,
        _optional(weight, columns),
        _optional(bias, columns),
        y_rows,
        () if rstd is None else (rstd.view(m, 1),),
    )
    config = heuristic(m, n, target_of(x), mode=mode)
    ragged = config.ragged(m, n)
    args = (*arrays, n, *constants, inner)
    if config.chunked:
        launch(rms_norm_chunks, (m,), (*args, config.columns, ragged[1]), hints=config.hints)
    else:
        grid = (-(-m // config.rows),)
        launch(rms_norm_rows, grid, (*args, config.rows, config.columns, *ragged), hints=config.hints)


@ct.kernel
def rms_norm_backward_rows(
    dy: Rows,
    x: Rows,
    weight: tuple[Rows, ...],
    rstd: Rows,
    dx: tuple[Rows, ...],
    dweight: tuple[Rows, ...],
    dbias: tuple[Rows, ...],
    N: int,
    offset: float,
    INNER: ct.Constant[tuple[int, int]],
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: a COLUMNS wide strip of every num_blocks(0)-th tile of ROWS rows; with dx, the strip is whole rows.

    dy, x: (*outer, *inner) of INNER inner dimensions each, weight: (1, *inner), rstd: (M, 1), dx: (M, N), dweight,
    dbias: (num_blocks(0), N) float32 sums over the block's rows. Those that may be absent come in tuples.
    """
    column = (ct.bid(1) * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32))[None, :]
    column_mask = tiles.inside(column, N, RAGGED_COLUMNS)
    weight_sum = ct.zeros((1, COLUMNS), dtype=ct.float32)
    bias_sum = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for tile in range(ct.bid(0), ct.cdiv(rstd.shape[0], ROWS), ct.num_blocks(0)):
        row = tiles.row_numbers(tile, ROWS)
        row_mask = tiles.inside(row, rstd.shape[0], RAGGED_ROWS)
        mask = tiles.both(row_mask, column_mask)
        inverse = tiles.load(rstd, row, 0, row_mask)
        gradient = tiles.load(dy, row, column, mask, inner=INNER[0])
        normed = tiles.load(x, row, column, mask, inner=INNER[1]) * inverse
        for array in ct.static_iter(dx):
            scaled = _affine(gradient, weight, (), offset, column, column_mask)
            mean = ct.sum(scaled * normed, axis=1, keepdims=True) / N
            tiles.store(array, row, column, (scaled - normed * mean) * inverse, mask)
        weight_sum += ct.sum(gradient * normed, axis=0, keepdims=True)
        bias_sum += ct.sum(gradient, axis=0, keepdims=True)
    for array in ct.static_iter(dweight):
        tiles.store(array, ct.bid(0), column, weight_sum, column_mask)
    for array in ct.static_iter(dbias):
        tiles.store(array, ct.bid(0), column, bias_sum, column_mask)


@ct.kernel
def rms_norm_backward_chunks(
    dy: Rows,
    x: Rows,
    weight: tuple[Rows, ...],
    rstd: Rows,
    dx: Rows,
    N: int,
    offset: float,
    INNER: ct.Constant[tuple[int, int]],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[bool],
) -> None:
    """One block: one row of dx, in two passes over chunks of COLUMNS, forwards and backwards.

    Arrays as in `rms_norm_backward_rows`.
    """
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    inverse = tiles.load(rstd, row, 0, None)
    chunks = ct.cdiv(N, COLUMNS)
    products = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for chunk in range(chunks):
        column = chunk * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        gradient = tiles.load(dy, row, column, mask, inner=INNER[0])
        normed = tiles.load(x, row, column, mask, inner=INNER[1]) * inverse
        products += _affine(gradient, weight, (), offset, column, mask) * normed
    mean = ct.sum(products, axis=1, keepdims=True) / N
    for chunk in range(chunks):
        column = (chunks - 1 - chunk) * COLUMNS + lane
        mask = tiles.inside(column, N, RAGGED)
        gradient = tiles.load(dy, row, column, mask, inner=INNER[0])
        normed = tiles.load(x, row, column, mask, inner=INNER[1]) * inverse
        scaled = _affine(gradient, weight, (), offset, column, mask)
        tiles.store(dx, row, column, (scaled - normed * mean) * inverse, mask)


_STRIP = RowConfig(chunked=True, rows=4, columns=1024)
"""How the sums for weight and bias go about rows too long to be held whole."""


@functools.lru_cache(maxsize=1024)
def backward_heuristic(m: int, n: int, target: Target) -> RowConfig:
    """How dx goes about m rows of n columns: two tiles to hold, and up to three rows of weights and sums."""
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS // 2:
        return RowConfig(chunked=True, rows=1, columns=4096, hints=Hints(num_worker_warps=8))
    return RowConfig(
        chunked=False,
        rows=rows_per_block(m, columns, 2048, target.num_sms),
        columns=columns,
        hints=Hints(num_worker_warps=8 if columns >= 2048 else None),
    )


@register_backward("rms_norm", backend="cutile", forward=rms_norm_forward)
def rms_norm_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rstd: Tensor,
    *,
    offset: float = 0.0,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias; None for those not in `needs`, or not given.

    rstd is what `rms_norm_forward` returned. The sums over rows are float32, in a fixed order, and rounded once.
    """
    dx = torch.empty_like(input, memory_format=torch.contiguous_format) if needs[0] else None
    summed = (weight if needs[1] else None, bias if needs[2] else None)
    if input.numel() == 0:
        dweight, dbias = (None if like is None else torch.zeros_like(like) for like in summed)
        return dx, dweight, dbias
    columns, m = input.dim() - rstd.dim(), rstd.numel()
    n = input.numel() // m
    (dy_rows, dy_inner), (x_rows, x_inner) = as_split_rows(grad_output, columns), as_split_rows(input, columns)
    arrays = (dy_rows, x_rows, _optional(weight, columns), rstd.view(m, 1))
    constants = (n, offset, (dy_inner, x_inner))
    dx_rows = _optional(dx, columns)
    config = backward_heuristic(m, n, target_of(input))
    if config.chunked:
        for rows in dx_rows:
            args = (*arrays, rows, *constants, config.columns, config.ragged(m, n)[1])
            launch(rms_norm_backward_chunks, (m,), args, hints=config.hints)
        dweight, dbias = _launch_backward_rows(arrays, (), summed, constants, _STRIP)
    else:
        dweight, dbias = _launch_backward_rows(arrays, dx_rows, summed, constants, config)
    return dx, dweight, dbias


def _launch_backward_rows(
    arrays: tuple[Any, ...],
    dx: tuple[Tensor, ...],
    summed: tuple[Tensor | None, Tensor | None],
    constants: tuple[Any, ...],
    config: RowConfig,
) -> tuple[Tensor | None, Tensor | None]:
    """Fill dx, if given, and return the sums for weight and bias, each like its tensor in `summed`."""
    m, n = arrays[-1].shape[0], constants[0]
    across = -(-n // config.columns)
    blocks = min(-(-m // config.rows), max(1, 2 * target_of(arrays[0]).num_sms // across))
    partials: list[tuple[Tensor, ...]] = [
        () if like is None else (torch.empty((blocks, n), dtype=torch.float32, device=like.device),) for like in summed
    ]
    if dx or any(partials):
        args = (*arrays, dx, *partials, *constants, config.rows, config.columns, *config.ragged(m, n))
        launch(rms_norm_backward_rows, (blocks, across), args, hints=config.hints)
    dweight, dbias = (
        None if like is None else sum_rows(partial[0], like) for partial, like in zip(partials, summed, strict=True)
    )
    return dweight, dbias


def _optional(tensor: Tensor | None, columns: int) -> tuple[Tensor, ...]:
    """A kernel's argument that may be absent, seen as rows."""
    return () if tensor is None else (as_split_rows(tensor, columns)[0],)
