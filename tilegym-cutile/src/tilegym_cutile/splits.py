"""Attention over all keys from attention over splits of them: the last step of every decode op, and `splitk_reduce`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cuda.tile as ct

from tilegym_cutile import tiles
from tilegym_cutile.attention_tiles import LOWEST
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Hints, Target, launch, optional, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How a block goes about its row: a power of two of splits at a time."""

    splits: int
    hints: Hints = Hints()  # noqa: RUF009 - frozen


@ct.kernel
def reduce_splits_tiles(
    partials: Rows,
    lse: Rows,
    out: Rows,
    out_lse: tuple[Rows, ...],
    SPLITS: ct.Constant[int],
    COLUMNS: ct.Constant[int],
    RAGGED: ct.Constant[tuple[bool, bool]],
) -> None:
    """One block: one head. partials: (B, H, splits, D), lse: (B, H, splits), out: (B, H, D), out_lse: (B, H), or none.

    SPLITS splits at a time, of COLUMNS >= D; RAGGED: whether their last tile sticks out, and whether COLUMNS does.
    """
    batch, head = ct.bid(0) // out.shape[1], ct.bid(0) % out.shape[1]
    lane = ct.arange(SPLITS, dtype=ct.int32)
    column = ct.arange(COLUMNS, dtype=ct.int32)
    column_mask = tiles.inside(column, out.shape[2], RAGGED[1])
    steps = ct.cdiv(lse.shape[2], SPLITS)
    highest = ct.full((SPLITS,), LOWEST, dtype=ct.float32)
    for step in range(steps):
        split = step * SPLITS + lane
        mask = tiles.inside(split, lse.shape[2], RAGGED[0])
        found = ct.gather(lse, (batch, head, split), mask=mask, padding_value=-math.inf, check_bounds=False)
        highest = ct.maximum(highest, found)
    top = ct.max(highest)
    total = ct.zeros((SPLITS,), dtype=ct.float32)
    result = ct.zeros((COLUMNS,), dtype=ct.float32)
    for step in range(steps):
        split = step * SPLITS + lane
        mask = tiles.inside(split, lse.shape[2], RAGGED[0])
        found = ct.gather(lse, (batch, head, split), mask=mask, padding_value=-math.inf, check_bounds=False)
        weight = ct.exp2(found - top, flush_to_zero=True)
        seen = (found != -math.inf)[:, None]
        seen = seen if column_mask is None else seen & column_mask[None, :]
        held = ct.gather(partials, (batch, head, split[:, None], column[None, :]), mask=seen, check_bounds=False)
        result += ct.sum(weight[:, None] * ct.astype(held, ct.float32), axis=0)
        total += weight
    divisor = ct.sum(total)
    result *= 1.0 / ct.where(divisor == 0.0, 1.0, divisor)
    ct.scatter(out, (batch, head, column), ct.astype(result, out.dtype), mask=column_mask, check_bounds=False)
    for array in ct.static_iter(out_lse):
        ct.scatter(array, (batch, head), top + ct.log2(divisor), check_bounds=False)


def search_space(splits: int, size: int) -> Iterator[Config]:
    """The configurations worth timing."""
    for exponent in range(7):
        if 2**exponent <= next_power_of_2(splits) and 2**exponent * next_power_of_2(size) <= 16384:  # registers
            for warps in (None, 8):
                yield Config(splits=2**exponent, hints=Hints(num_worker_warps=warps))


@tuned("reduce_splits", space=search_space, bucketed=("rows",))
def heuristic(rows: int, splits: int, size: int, target: Target) -> Config:  # noqa: ARG001 - all that a tuner keys on
    """The configuration for so many rows of so many splits, of heads of `size`."""
    return Config(splits=max(1, min(next_power_of_2(splits), 4096 // next_power_of_2(size))))


def reduce_splits(partials: Tensor, lse: Tensor, out: Tensor, out_lse: Tensor | None = None) -> None:
    """Write out: (B, H, D), and out_lse: (B, H), from partials: (B, H, splits, D) with lse: (B, H, splits), base 2."""
    batch, heads, size = out.shape
    splits = lse.shape[2]
    config = heuristic(batch * heads, splits, size, target_of(out))
    columns = next_power_of_2(size)
    arrays = (partials, lse, out, optional(out_lse))
    ragged = (splits % config.splits != 0, size != columns)
    launch(reduce_splits_tiles, (batch * heads,), (*arrays, config.splits, columns, ragged), hints=config.hints)
