"""Sums over rows in a fixed order: how weight gradients come together without atomics.

A backward kernel leaves one row of float32 partial sums per block; `sum_rows` adds these up, or rows as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
    """One block: COLUMNS columns of one x, over every num_blocks(2)-th tile of ROWS rows.

    x: (P, N) each, y: (num_blocks(2), N) each.
    """
    column = (ct.bid(0) * COLUMNS + ct.arange(COLUMNS, dtype=ct.int32))[None, :]
    column_mask = column < N
    for index in ct.static_iter(range(len(x))):
        if ct.bid(1) == index:
            P = x[index].shape[0]
            total = ct.zeros((ROWS, COLUMNS), dtype=ct.float32)
            for tile in range(ct.bid(2), ct.cdiv(P, ROWS), ct.num_blocks(2)):
                row = tiles.row_numbers(tile, ROWS)
                total += tiles.load(x[index], row, column, (row < P) & column_mask)
            tiles.store(y[index], ct.bid(2), column, ct.sum(total, axis=0, keepdims=True), column_mask)


def sum_rows(partials: tuple[Tensor, ...], like: Sequence[Tensor]) -> list[Tensor]:
    """The sum of each of partials, (P, N), over P: rounded once to the dtype of its tensor in `like`, in its shape.

    Many rows of few columns are shared out among blocks, whose sums are summed in turn.
    """
    totals = [torch.empty(size=one.shape, dtype=one.dtype, device=one.device) for one in like]
    if partials:
        (p, n), num_sms = partials[0].shape, target_of(partials[0]).num_sms
        columns = _tile_columns(n, num_sms)
        across, most = -(-n // columns), 2048 // columns
        shares = min(_BLOCKS_PER_SM * num_sms // (across * len(partials)), p // (_LEAST_TILES * most))
        if shares > 1:
            shared = tuple([torch.empty(size=(shares, n), dtype=torch.float32, device=one.device) for one in partials])
            launch(sum_rows_tiles, (across, len(partials), shares), (partials, shared, n, most, columns))
            partials, p = shared, shares
        outputs = tuple([as_split_rows(total, total.dim())[0] for total in totals])
        rows = min(most, next_power_of_2(p))
        launch(sum_rows_tiles, (across, len(partials), 1), (partials, outputs, n, rows, columns))
    return totals


_BLOCKS_PER_SM: Final = 4
_LEAST_TILES: Final = 16
"""That a block goes through, if rows are shared out: fewer take less time than a second launch."""


def _tile_columns(n: int, num_sms: int) -> int:
    """Columns per block: so many blocks for each SM if tiles need not be narrower than a memory transaction for it."""
    return min(max(32, next_power_of_2(n // (_BLOCKS_PER_SM * num_sms))), 1024)
