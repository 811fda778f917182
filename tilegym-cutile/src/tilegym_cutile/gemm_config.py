"""Configurations of the matrix products: how large tiles are, and how they are shared out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Hints, Target
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

FLOAT8: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
_FEW: Final = 64
"""Rows, or columns, that leave the loads of the other operand to decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmConfig:
    """How a product is computed."""

    tile: tuple[int, int, int]
    """Rows and columns of a tile, and the terms that are added to it at a time."""
    swapped: bool = False
    """Whether the transpose is computed: b's columns are the tile's rows."""
    splits: int = 1
    """Into how many summands K is split."""
    group: int = 8
    """Rows of tiles that are walked down together."""
    latency: int = 4
    """The loads' hint, from 1 to 10: how far ahead they are."""
    hints: Hints = Hints()  # noqa: RUF009 - frozen


_WARPS: Final = {4: Hints(num_worker_warps=4), 8: Hints(num_worker_warps=8)}


def _tiles(dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> tuple[GemmConfig, ...]:
    """Tiles that compile without spills, the largest first."""

    def ladder(*steps: tuple[int, int, int, int]) -> tuple[GemmConfig, ...]:
        return tuple(GemmConfig(tile=(m, n, k), hints=_WARPS[warps]) for m, n, k, warps in steps)

    hopper = target.capability[0] in (9, 10)
    if dtype == torch.float32 and not tf32:  # without tensor cores
        return ladder((128, 64, 16, 8), (64, 32, 32, 8))
    if not blocked:
        return ladder((128, 64, 32, 8), (64, 32, 32, 4))
    if dtype in FLOAT8 and hopper:
        return ladder((128, 128, 128, 8), (64, 128, 128, 4), (64, 64, 128, 4))
    if hopper:
        return ladder((128, 256, 64, 8), (128, 128, 64, 4), (64, 128, 64, 4), (64, 64, 64, 4))
    return ladder((128, 128, 32, 8), (64, 64, 32, 4))


def search_space(
    m: int,
    n: int,
    k: int,
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    target: Target,
) -> Iterator[GemmConfig]:
    """What is worth trying; few rows or columns leave it to the loads of the other operand."""
    ladder = _tiles(dtype, tf32, blocked, target)
    if min(m, n) <= _FEW:
        few, steps = max(16, next_power_of_2(min(m, n))), (64, 128, 256)
        for rows in (64, 128):
            for depth in steps:
                for splits in (1, 2, 4):
                    if splits == 1 or splits * depth * 2 <= k:
                        yield GemmConfig(tile=(rows, few, depth), swapped=m < n, splits=splits, hints=_WARPS[4])
        return
    for one in ladder:
        for latency in (2, 4, 8):
            for group in (4, 8, 16):
                yield replace(one, latency=latency, group=group)


@tuned("gemm", space=search_space, bucketed=("m", "matrices"))
def heuristic(
    m: int, n: int, k: int, matrices: int, dtype: torch.dtype, tf32: bool, blocked: bool, target: Target
) -> GemmConfig:
    """The configuration for so many products (m, k) @ (k, n), from what an H200 likes.

    Args:
        m: rows of the result.
        n: its columns.
        k: terms of each element.
        matrices: how many products there are.
        dtype: what is multiplied; float32 without tensor cores unless `tf32`.
        tf32: whether float32 is rounded to tf32.
        blocked: whether operands are loaded as blocks.
        target: the device.
    """
    ladder = _tiles(dtype, tf32, blocked, target)
    if min(m, n) <= _FEW and ladder[0].tile[2] >= 64:
        few = max(16, next_power_of_2(min(m, n)))
        chosen = GemmConfig(tile=(128, few, 128), swapped=m < n, hints=_WARPS[4])
    else:
        chosen = next((one for one in ladder if count_tiles(one, m, n, matrices) >= target.num_sms), ladder[-1])
    splits = _splits(count_tiles(chosen, m, n, matrices), -(-k // chosen.tile[2]), target)
    return replace(chosen, splits=splits)


def count_tiles(config: GemmConfig, m: int, n: int, matrices: int) -> int:
    """How many tiles the product has, without splits."""
    rows, columns, _ = config.tile
    if config.swapped:
        m, n = n, m
    return -(-m // rows) * -(-n // columns) * matrices


def _splits(tiles: int, steps: int, target: Target) -> int:
    """So many that most SMs have work, with at least 4 steps along K for each summand."""
    return max(1, min(target.num_sms // tiles, steps // 4, 16))
