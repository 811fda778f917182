"""Sums over rows in a fixed order: how weight gradients come together without atomics.

A backward kernel leaves one row of float32 partial sums per block; `sum_rows` adds these up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym_cutile import tiles
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor


@ct.kernel
def sum_rows_tiles(x: Rows, y: Rows, N: int, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]) -> None:
    """One block: COLUMNS columns, over all rows. x: (P, N), y: (1, N)."""
    column = (ct.bid(0) * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32))[None, :]
    column_mask = column < N
    total = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
    for tile in range(ct.cdiv(x.shape[0], ROWS)):
        row = tiles.row_numbers(tile, ROWS)
        total += tiles.load(x, row, column, (row < x.shape[0]) & column_mask)
    tiles.store(y, 0, column, ct.sum(total, axis=0, keepdims=True), column_mask)


def sum_rows(partials: Tensor, like: Tensor) -> Tensor:
    """The sum of partials: (P, N) over P, rounded once to the dtype of `like` and in its shape, of N elements."""
    p, n = partials.shape
    total = torch.empty(like.shape, dtype=like.dtype, device=partials.device)
    columns = _tile_columns(n, target_of(partials).num_sms)
    rows = min(2048 // columns, next_power_of_2(p))
    launch(sum_rows_tiles, (-(-n // columns),), (partials, total.view(1, n), n, rows, columns))
    return total


def _tile_columns(n: int, num_sms: int) -> int:
    """Columns per block: four blocks for each SM if tiles need not be narrower than a memory transaction for it."""
    return min(max(32, next_power_of_2(n // (4 * num_sms))), 1024)
