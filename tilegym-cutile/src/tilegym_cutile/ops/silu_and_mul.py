"""SiLU of the first half of the last dimension, times the second half."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym import register_impl
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
    tiles.store(y, row, column, tiles.divide(gate, 1.0 + tiles.exp(-gate)) * up, mask)


def heuristic(m: int, n: int, target: Target) -> RowConfig:
    """The configuration for m rows of n columns: tiles of about 2048 elements, whatever the row's length."""
    columns = min(next_power_of_2(n), 2048)
    return RowConfig(chunked=True, rows=rows_per_block(m, columns, 2048, target.num_sms), columns=columns)


@register_impl("silu_and_mul", backend="cutile")
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/silu_and_mul.py`."""
    half = input.shape[-1] // 2
    if out is None:
        out = torch.empty((*input.shape[:-1], half), dtype=input.dtype, device=input.device)
    if out.numel() == 0:
        return out
    m = out.numel() // half
    config = heuristic(m, half, target_of(input))
    across = -(-half // config.columns)
    arrays = (as_rows(input.narrow(-1, 0, half)), as_rows(input.narrow(-1, half, half)), as_rows(out))
    args = (*arrays, m, half, across, config.rows, config.columns, *config.ragged(m, half))
    launch(silu_and_mul_tiles, (-(-m // config.rows) * across,), args, hints=config.hints)
    return out
