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
    column_tiles: int,
    ROWS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    CHECK: ct.Constant[bool],
) -> None:
    """One block: one tile of ROWS x COLUMNS. a, b, y: (*outer, H)."""
    row, column = tiles.tile_numbers(ct.bid(0), column_tiles, ROWS, COLUMNS)
    gate = tiles.load(a, row, column, check=CHECK)
    up = tiles.load(b, row, column, check=CHECK)
    tiles.store(y, row, column, gate / (1.0 + ct.exp(-gate)) * up, check=CHECK)


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
    column_tiles = -(-half // config.columns)
    arrays = map(as_rows, (input.narrow(-1, 0, half), input.narrow(-1, half, half), out))
    args = (*arrays, column_tiles, config.rows, config.columns, config.is_ragged(m, half))
    launch(silu_and_mul_tiles, (-(-m // config.rows) * column_tiles,), args, hints=config.hints)
    return out
