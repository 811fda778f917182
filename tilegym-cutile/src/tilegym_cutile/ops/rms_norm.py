"""Root-mean-square normalisation over the last dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import cuda.tile as ct
import torch

from tilegym import register_impl
from tilegym_cutile import tiles
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
    """One block: one row, read twice in chunks of COLUMNS. Arrays as in `rms_norm_rows`."""
    row = tiles.row_numbers(ct.bid(0), 1)
    lane = ct.arange(COLUMNS, dtype=ct.int32)[None, :]
    squares = ct.zeros((1, COLUMNS), dtype=ct.float32)
    for start in range(0, N, COLUMNS):
        column = start + lane
        values = tiles.load(x, row, column, tiles.inside(column, N, RAGGED), inner=INNER)
        squares += values * values
    inverse = ct.rsqrt(ct.sum(squares, axis=1, keepdims=True) / N + eps)
    for start in range(0, N, COLUMNS):
        column = start + lane
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


def heuristic(m: int, n: int, target: Target, *, mode: Mode | None = None) -> RowConfig:
    """The configuration for m rows of n columns. No mode is persistent: a loop over rows costs too many registers."""
    columns = next_power_of_2(n)
    if columns > MOST_COLUMNS or mode == "multi_wave_reload":
        return RowConfig(chunked=True, rows=1, columns=min(columns, 8192), hints=Hints(num_worker_warps=8))
    return RowConfig(
        chunked=False,
        rows=rows_per_block(m, columns, 4096, target.num_sms),
        columns=columns,
        hints=Hints(num_worker_warps=8 if columns >= 16384 else None),
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
    y = torch.empty(input.shape, dtype=input.dtype, device=input.device)
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
    y = torch.empty(input.shape, dtype=input.dtype, device=input.device)
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
        *(() if array is None else (as_split_rows(array, columns)[0],) for array in (weight, bias)),
        y_rows,
        () if rstd is None else (rstd.view(m, 1),),
    )
    config = heuristic(m, n, target_of(x), mode=mode)
    ragged = config.ragged(m, n)
    if config.chunked:
        args = (*arrays, n, *constants, inner, config.columns, ragged[1])
        launch(rms_norm_chunks, (m,), args, hints=config.hints)
    else:
        args = (*arrays, n, *constants, inner, config.rows, config.columns, *ragged)
        launch(rms_norm_rows, (-(-m // config.rows),), args, hints=config.hints)
