"""SiLU of the first half of the last dimension, times the second half."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.rows import RowConfig, as_rows, next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor


@ct.kernel
def silu_and_mul_tiles(
    a: Rows,
    b: Rows,
    y: Rows,
    M: ct.ScalarInt64[int],
    H: ct.ScalarInt64[int],
    across: int,
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: one tile of ROWS x COLUMNS, of which `across` make up the columns. a, b, y: (*outer, H), M rows."""
    row = tiles.row_numbers(ct.bid(0) // across, ROWS)
    column = tiles.row_numbers(ct.bid(0) % across, COLUMNS).reshape((1, COLUMNS))
    mask = tiles.both(tiles.inside(row, M, RAGGED_ROWS), tiles.inside(column, H, RAGGED_COLUMNS))
    gate = tiles.load(a, row, column, mask)
    up = tiles.load(b, row, column, mask)
    tiles.store(y, row, column, gate * tiles.reciprocal(1.0 + tiles.exp_term(-gate)) * up, mask)


@functools.lru_cache(maxsize=1024)
def heuristic(m: int, n: int, target: Target) -> RowConfig:
    """The configuration for m rows of n columns: tiles of about 2048 elements, whatever the row's length."""
    columns = min(next_power_of_2(n), 2048)
    return RowConfig(chunked=True, rows=rows_per_block(m, columns, 2048, target.num_sms), columns=columns)


@register_impl("silu_and_mul", backend="cutile")
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/silu_and_mul.py`."""
    if out is None:
        shape = (*input.shape[:-1], input.shape[-1] // 2)
        out = torch.empty(shape, dtype=input.dtype, device=input.device)
    _launch(silu_and_mul_tiles, (*_halves(input), as_rows(out)))
    return out


@ct.kernel
def silu_and_mul_backward_tiles(
    a: Rows,
    b: Rows,
    dy: Rows,
    da: Rows,
    db: Rows,
    M: ct.ScalarInt64[int],
    H: ct.ScalarInt64[int],
    across: int,
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED_ROWS: ct.Constant[bool],
    RAGGED_COLUMNS: ct.Constant[bool],
) -> None:
    """One block: one tile, as in `silu_and_mul_tiles`. All arrays: (*outer, H)."""
    row = tiles.row_numbers(ct.bid(0) // across, ROWS)
    column = tiles.row_numbers(ct.bid(0) % across, COLUMNS).reshape((1, COLUMNS))
    mask = tiles.both(tiles.inside(row, M, RAGGED_ROWS), tiles.inside(column, H, RAGGED_COLUMNS))
    gate = tiles.load(a, row, column, mask)
    up = tiles.load(b, row, column, mask)
    gradient = tiles.load(dy, row, column, mask)
    sigmoid = tiles.reciprocal(1.0 + tiles.exp_term(-gate))
    silu = gate * sigmoid
    tiles.store(da, row, column, gradient * up * (sigmoid + silu * (1.0 - sigmoid)), mask)
    tiles.store(db, row, column, gradient * silu, mask)


@register_backward("silu_and_mul", backend="cutile")
def silu_and_mul_backward(grad_output: Tensor, input: Tensor) -> Tensor:
    """The gradient of the input, from that of the output and the input: of the input's shape and dtype, contiguous."""
    gradient = torch.empty_like(input, memory_format=torch.contiguous_format)
    _launch(silu_and_mul_backward_tiles, (*_halves(input), as_rows(grad_output), *_halves(gradient)))
    return gradient


def _halves(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The two halves of the last dimension, seen as rows."""
    rows = as_rows(tensor)
    half = rows.shape[-1] // 2
    return rows.narrow(-1, 0, half), rows.narrow(-1, half, half)


def _launch(kernel: ct.kernel, arrays: tuple[Tensor, ...]) -> None:
    """Run an elementwise kernel on arrays (*outer, H) of as many elements each."""
    elements, n = arrays[0].numel(), arrays[0].shape[-1]
    if elements == 0:
        return
    m = elements // n
    config = heuristic(m, n, target_of(arrays[0]))
    across = -(-n // config.columns)
    shape = (m, n, across, config.rows, config.columns, *config.ragged(m, n))
    launch(kernel, (-(-m // config.rows) * across,), (*arrays, *shape), hints=config.hints)
