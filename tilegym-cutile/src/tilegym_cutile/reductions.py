"""Sums over rows in a fixed order: how weight gradients come together without atomics.

A backward kernel leaves one row of float32 partial sums per block; `sum_rows` adds these up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym_cutile import tiles
from tilegym_cutile.rows import as_split_rows, next_power_of_2
from tilegym_cutile.runtime import launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@ct.kernel
def sum_rows_tiles(
    x: tuple[Rows, ...], y: tuple[Rows, ...], N: int, ROWS: ct.Constant[int], COLUMNS: ct.Constant[int]
) -> None:
    """One block: COLUMNS columns of one x, over all rows. x: (P, N) each, y: (1, N) each."""
    column = (ct.bid(0) * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32))[None, :]
    column_mask = column < N
    for index in ct.static_iter(range(len(x))):
        if ct.bid(1) == index:
            P = x[index].shape[0]
            total = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
            for tile in range(ct.cdiv(P, ROWS)):
                row = tiles.row_numbers(tile, ROWS)
                total += tiles.load(x[index], row, column, (row < P) & column_mask)
            tiles.store(y[index], 0, column, ct.sum(total, axis=0, keepdims=True), column_mask)


def sum_rows(partials: tuple[Tensor, ...], like: Sequence[Tensor]) -> list[Tensor]:
    """The sum of each of partials, (P, N), over P: rounded once to the dtype of its tensor in `like`, in its shape."""
    totals = [torch.empty(size=one.shape, dtype=one.dtype, device=one.device) for one in like]
    if partials:
        p, n = partials[0].shape
        columns = _tile_columns(n, target_of(partials[0]).num_sms)
        rows = min(2048 // columns, next_power_of_2(p))
        outputs = tuple([as_split_rows(total, total.dim())[0] for total in totals])
        launch(sum_rows_tiles, (-(-n // columns), len(partials)), (partials, outputs, n, rows, columns))
    return totals


def _tile_columns(n: int, num_sms: int) -> int:
    """Columns per block: four blocks for each SM if tiles need not be narrower than a memory transaction for it."""
    return min(max(32, next_power_of_2(n // (4 * num_sms))), 1024)
