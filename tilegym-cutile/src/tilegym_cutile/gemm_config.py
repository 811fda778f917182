"""Configurations of the matrix products: how large tiles are, and how they are shared out."""

from __future__ import annotations

import itertools
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


_FOUR, _EIGHT = Hints(num_worker_warps=4), Hints(num_worker_warps=8)


def _tiles(dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> list[GemmConfig]:
    """Tiles that compile without spills, the largest first."""
    asynchronous = target.capability[0] in (9, 10)  # tensor cores that read shared memory, and whole warps that load
    latency = 4 if asynchronous else 2
    if dtype == torch.float32 and not tf32:  # without tensor cores
        steps = [(64, 64, 16, _EIGHT), (64, 32, 32, _EIGHT)]
    elif not blocked:  # element by element: addresses take the registers
        steps, latency = [(128, 64, 32, _EIGHT), (64, 32, 32, _EIGHT)], 1
    elif not asynchronous or dtype == torch.float32:
        steps = [(128, 128, 32, _EIGHT), (64, 64, 32, _EIGHT)]
    elif dtype in FLOAT8:
        steps = [(128, 128, 128, _EIGHT), (64, 128, 128, _FOUR), (64, 64, 128, _FOUR)]
    else:
        steps = [(128, 256, 64, _EIGHT), (128, 128, 64, _FOUR), (64, 128, 64, _FOUR), (64, 64, 64, _FOUR)]
    return [GemmConfig(tile=(m, n, k), latency=latency, hints=hints) for m, n, k, hints in steps]


def _long_tiles(few: int, dtype: torch.dtype, tf32: bool, target: Target) -> list[GemmConfig]:
    """Tiles of so many columns alone, for operands loaded as blocks: none without tensor cores."""
    if dtype == torch.float32 and not tf32:
        return []
    columns = max(16, next_power_of_2(few))
    if target.capability[0] in (9, 10):
        depth = 128 if dtype != torch.float32 else 64
        return [GemmConfig(tile=(rows, columns, depth), hints=_FOUR) for rows in (128, 64)]
    return [GemmConfig(tile=(64, columns, 64 if dtype != torch.float32 else 32), latency=2, hints=_FOUR)]


def _candidates(
    m: int, n: int, dtype: torch.dtype, tf32: bool, blocked: bool, target: Target
) -> tuple[list[GemmConfig], bool]:
    """Tiles to choose from, and whether few rows or columns leave it to the loads of the other operand."""
    long = _long_tiles(min(m, n), dtype, tf32, target) if blocked and min(m, n) <= _FEW else []
    return (
        ([replace(one, swapped=m < n) for one in long], True) if long else (_tiles(dtype, tf32, blocked, target), False)
    )


def search_space(
    m: int, n: int, k: int, dtype: torch.dtype, tf32: bool, blocked: bool, target: Target
) -> Iterator[GemmConfig]:
    """What is worth trying: more or fewer loads ahead, and where these decide, other depths and splits."""
    candidates, long = _candidates(m, n, dtype, tf32, blocked, target)
    for one in candidates:
        rows, columns, depth = one.tile
        if not long:
            for latency, group in itertools.product((1, 2, 4, 8), (4, 8, 16)):
                yield replace(one, latency=latency, group=group)
            continue
        for deep, latency, splits in itertools.product((depth // 2, depth, 2 * depth), (2, 4, 8), (1, 2, 4)):
            if splits == 1 or splits * deep * 2 <= k:
                yield replace(one, tile=(rows, columns, deep), latency=latency, splits=splits)


@tuned("gemm", space=search_space, bucketed=("m", "matrices"))
def heuristic(
    m: int,
    n: int,
    k: int,
    matrices: int,
    trans: tuple[bool, bool],  # noqa: ARG001 - tells tuned configurations apart
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    target: Target,
) -> GemmConfig:
    """The configuration for so many products (m, k) @ (k, n), from what an H200 likes.

    Args:
        m: rows of the result.
        n: its columns.
        k: terms of each element.
        matrices: how many products there are.
        trans: whether the operands are given transposed.
        dtype: what is multiplied; float32 without tensor cores unless `tf32`.
        tf32: whether float32 is rounded to tf32.
        blocked: whether operands are loaded as blocks.
        target: the device.
    """
    candidates, _ = _candidates(m, n, dtype, tf32, blocked, target)
    enough = (one for one in candidates if count_tiles(one, m, n, matrices) >= target.num_sms)
    chosen = next(enough, candidates[-1])
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


def _group_tiles(dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> list[GemmConfig]:
    """As `_tiles`, for a kernel that has its arrays from lists, and spills sooner."""
    blocked = blocked and target.capability >= (9, 0)
    return [replace(one, hints=_EIGHT) for one in _tiles(dtype, tf32, blocked, target)]


def group_search_space(n: int, dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> Iterator[GemmConfig]:
    """What is worth trying for a group."""
    for one, latency, group in itertools.product(_group_tiles(dtype, tf32, blocked, target), (1, 2, 4, 8), (4, 8, 16)):
        if one.tile[1] < 2 * n:
            yield replace(one, latency=latency, group=group)


@tuned("group_gemm", space=group_search_space, bucketed=("m", "members"))
def group_heuristic(
    m: int,
    n: int,
    members: int,
    trans: tuple[bool, bool],  # noqa: ARG001 - tells tuned configurations apart
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    target: Target,
) -> GemmConfig:
    """The configuration for a group of products.

    Args:
        m: rows of all results together.
        n: columns of the widest.
        members: how many products there are.
        trans: whether the operands are given transposed.
        dtype: what is multiplied; float32 without tensor cores unless `tf32`.
        tf32: whether float32 is rounded to tf32.
        blocked: whether all operands are loaded as blocks.
        target: the device.
    """
    candidates = _group_tiles(dtype, tf32, blocked, target)
    rows = -(-m // members)
    enough = (one for one in candidates if count_tiles(one, rows, n, members) >= target.num_sms)
    return next(enough, candidates[-1])
