"""Sums over rows in a fixed order: how weight gradients come together without atomics.

A backward kernel leaves one row of float32 partial sums per block; `sum_rows` adds these up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym_cutile import tiles
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import launch
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor

_ROWS, _COLUMNS = 64, 32


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
    rows, n = partials.shape
    total = torch.empty(like.shape, dtype=like.dtype, device=partials.device)
    args = (partials, total.view(1, n), n, min(_ROWS, next_power_of_2(rows)), _COLUMNS)
    launch(sum_rows_tiles, (-(-n // _COLUMNS),), args)
    return total
