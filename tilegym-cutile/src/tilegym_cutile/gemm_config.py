"""Configurations of the matrix products: how large tiles are, and how they are shared out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import torch

from tilegym.contract import FLOAT8
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Hints, Target
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FEW: Final = 64
"""Rows, or columns, that leave the loads of the other operand to decide."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmConfig:
    """How a product is computed."""

    tile: tuple[int, int, int]
    """Rows and columns of a tile, and the terms that are added to it at a time."""
    parts: int = 1
    """In how many parts of its columns a tile is added up: theirs are a power of two, where a tile's need not be."""
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
_TWO = Hints(occupancy=2, num_worker_warps=4)
"""Two blocks on an SM: one waits for loads, or adds up what tensor cores made of float8, while the other multiplies."""


def _tiles(
    dtype: torch.dtype, tf32: bool, blocked: bool, stored: bool, trans: tuple[bool, bool], target: Target
) -> list[GemmConfig]:
    """Tiles that compile without spills, the largest first."""
    asynchronous = target.capability[0] in (9, 10)  # tensor cores that read shared memory, and whole warps that load
    latency = 6 if asynchronous else 2
    if not blocked:  # element by element: addresses take the registers
        steps, latency = [(128, 64, 32, _EIGHT), (64, 32, 32, _EIGHT)], 1
        if not asynchronous:
            steps = [(64, 64, 16, _EIGHT), (64, 32, 16, _EIGHT)]
        elif dtype == torch.float32 and not tf32:
            steps = steps[1:]
    elif dtype == torch.float32 and not tf32:  # without tensor cores
        steps = [(64, 64, 16, _EIGHT), (64, 32, 32 if asynchronous else 16, _EIGHT)]
        latency = 4 if asynchronous else 2
    elif not asynchronous or dtype == torch.float32:
        steps = [(128, 128, 32, _EIGHT), (64, 64, 32, _EIGHT)]
    elif dtype in FLOAT8 and trans == (False, True):  # as tensor cores take it: else, it is transposed in registers
        steps = [(128, 128, 128, _EIGHT), (64, 128, 128, _FOUR), (64, 64, 256, _TWO), (64, 32, 512, _FOUR)]
    elif dtype in FLOAT8:
        steps = [(128, 128, 64 if trans[0] else 128, _EIGHT), (64, 128, 128, _EIGHT), (64, 64, 128, _FOUR)]
    else:
        wide = (128, 256, 64 if trans[1] and stored else 32, _EIGHT)
        steps = [wide, (128, 128, 64, _FOUR), (128, 64, 128, _FOUR), (64, 64, 128, _FOUR), (64, 32, 256, _FOUR)]
    return [GemmConfig(tile=(m, n, k), latency=latency, hints=hints) for m, n, k, hints in steps]


def _more_tiles(dtype: torch.dtype, trans: tuple[bool, bool], target: Target) -> list[GemmConfig]:
    """Tiles to try besides: of SMs that load for each other, of 192 columns, of more blocks an SM."""
    if target.capability[0] not in (9, 10) or dtype.itemsize > 2 or trans[0]:
        return []
    pair = Hints(num_ctas=2, num_worker_warps=8)
    if dtype.itemsize == 2:
        shared = [GemmConfig(tile=tile, hints=pair) for tile in ((256, 256, 64), (256, 128, 64))]
        return [*shared, GemmConfig(tile=(128, 192, 64), parts=3, hints=_EIGHT)]
    if not trans[1]:
        return []
    three, four = Hints(occupancy=3, num_worker_warps=4), Hints(num_ctas=4, num_worker_warps=8)
    ways = (
        ((256, 128, 128), pair),
        ((128, 256, 128), pair),
        ((256, 256, 128), four),
        ((64, 128, 128), _TWO),
        ((64, 64, 256), three),
    )
    return [GemmConfig(tile=tile, hints=hints) for tile, hints in ways]


def _long_tile(few: int, long: int, dtype: torch.dtype, target: Target) -> GemmConfig:
    """A tile for few columns and long rows, of operands loaded as blocks, by tensor cores.

    What counts is how much of the long operand is on its way: two blocks on each SM, or else deep tiles.
    """
    columns = max(16, next_power_of_2(few))
    if target.capability[0] not in (9, 10):
        depth, hints = 64 if dtype != torch.float32 else 32, _EIGHT if columns == 32 else _FOUR
        return GemmConfig(tile=(64, columns, depth), latency=2, hints=hints)
    if dtype == torch.float32:
        return GemmConfig(tile=(64, columns, 64), latency=6, hints=_FOUR)
    blocks = -(-long // 64)
    if blocks > target.num_sms:  # two on each SM, side by side
        rows = 128 if columns == 16 and 3 * blocks > 4 * target.num_sms else 64
        depth = (512 if columns == 16 and rows == 64 else 256) // dtype.itemsize
        return GemmConfig(tile=(rows, columns, depth), latency=8, hints=_TWO)
    if 4 * blocks <= target.num_sms:
        columns = min(columns, 32)
    depth, latency = (512, 4) if columns * dtype.itemsize <= 32 else (256, 6)
    return GemmConfig(tile=(64, columns, depth), latency=latency, hints=_FOUR)


def _candidates(
    m: int,
    n: int,
    trans: tuple[bool, bool],
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    stored: bool,
    target: Target,
) -> tuple[list[GemmConfig], bool]:
    """Tiles to choose from, and whether few rows or columns leave it to the loads of the other operand."""
    if min(m, n) > _FEW or not blocked or (dtype == torch.float32 and not tf32):
        return _tiles(dtype, tf32, blocked, stored, trans, target), False
    return [replace(_long_tile(min(m, n), max(m, n), dtype, target), swapped=m < n)], True


def search_space(
    m: int,
    n: int,
    k: int,
    trans: tuple[bool, bool],
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    stored: bool,
    target: Target,
) -> Iterator[GemmConfig]:
    """What is worth trying: more or fewer loads ahead, and where these decide, other depths and splits."""
    candidates, loads_decide = _candidates(m, n, trans, dtype, tf32, blocked, stored, target)
    if not loads_decide and blocked:
        for one, latency in itertools.product(_more_tiles(dtype, trans, target), (4, 6, 8)):
            yield replace(one, latency=latency)
    for one in candidates:
        rows, columns, depth = one.tile
        if not loads_decide:
            for latency, splits in itertools.product((4, 6, 8), (1, 2, 4)):
                if splits == 1 or splits * depth * 2 <= k:
                    yield replace(one, latency=latency, splits=splits)
            continue
        for deep, latency, splits in itertools.product((depth // 2, depth, 2 * depth), (4, 6, 8), (1, 2, 4)):
            if splits == 1 or splits * deep * 2 <= k:
                yield replace(one, tile=(rows, columns, deep), latency=latency, splits=splits)


@tuned("gemm", space=search_space, bucketed=("m", "matrices"))
def heuristic(
    m: int,
    n: int,
    k: int,
    matrices: int,
    trans: tuple[bool, bool],
    dtype: torch.dtype,
    tf32: bool,
    blocked: bool,
    stored: bool,
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
        stored: whether the result is stored as blocks.
        target: the device.
    """
    candidates, loads_decide = _candidates(m, n, trans, dtype, tf32, blocked, stored, target)
    if loads_decide:
        splits = min(target.num_sms // count_tiles(candidates[0], m, n, matrices), k // 4096)
        return replace(candidates[0], splits=max(1, splits))
    most = max(1, k // 256)
    ways = (replace(one, splits=splits) for one in candidates for splits in (1, 2, 4, 8, 16) if splits <= most)
    return min(ways, key=lambda one: _cost(one, m, n, k, matrices, target))


def count_tiles(config: GemmConfig, m: int, n: int, matrices: int) -> int:
    """How many tiles the product has, without splits."""
    rows, columns, _ = config.tile
    if config.swapped:
        m, n = n, m
    return -(-m // rows) * -(-n // columns) * matrices


_LARGE: Final = 128 * 128
"""Elements of a tile that keeps the tensor cores as busy as a larger one."""
_HIDDEN: Final = 0.95
"""What is left of a tile's time beside another one on the SM."""
_LAUNCH: Final = 2**24
"""As many products of two numbers take an SM of an H200 as long as a second kernel does, some 6 microseconds."""
_STORED: Final = 2**10
"""Likewise of an element that is written, and read again."""


def _cost(config: GemmConfig, m: int, n: int, k: int, matrices: int, target: Target) -> float:
    """What the busiest SM has to do, counted in products of two numbers that it adds up in large tiles."""
    rows, columns, depth = config.tile
    tiles = count_tiles(config, m, n, matrices) * config.splits
    together = min(config.hints.occupancy or 1, -(-tiles // target.num_sms))
    waves = -(-tiles // (target.num_sms * together)) * together
    terms = -(-k // (depth * config.splits)) * depth
    elements: float = rows * columns / min(1.0, together * rows * columns / _LARGE) ** 0.6
    if together > 1:
        elements *= _HIDDEN
    summed = 0.0 if config.splits == 1 else _LAUNCH + m * n * matrices * config.splits / target.num_sms * _STORED
    return waves * terms * elements + summed


_SLOWER: Final = 8
"""How many times as long a product takes whose operands are loaded element by element."""


def copies_pay(products: int, elements: Sequence[int], target: Target) -> bool:
    """Whether copies of operands of so many elements each, for access by blocks, take less time than they save.

    products: of two numbers each, that are added up.
    """
    copied = sum(_LAUNCH + count / target.num_sms * _STORED for count in elements)
    return (_SLOWER - 1) * products / target.num_sms >= copied


def _group_tiles(dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> list[GemmConfig]:
    """As `_tiles`, for a kernel that has its arrays from lists, and spills sooner."""
    blocked = blocked and target.capability >= (9, 0)
    trans = (False, dtype not in FLOAT8)  # float8 tiles that serve operands whichever way they lie
    tiles = _tiles(dtype, tf32, blocked, True, trans, target)
    if dtype == torch.float32 and not tf32:  # without tensor cores
        tile = {8: (32, 32, 16), 12: (16, 32, 32)}.get(target.capability[0], (64, 32, 32))
        tiles = [replace(tiles[-1], tile=tile)]
    return [replace(one, hints=_EIGHT) for one in tiles if one.tile[2] < 256]


def fills(elements: int, target: Target) -> bool:
    """Whether a product of so many elements, two large tiles an SM, keeps a device so busy that its launch is free."""
    return elements >= 2 * _LARGE * target.num_sms


def group_search_space(n: int, dtype: torch.dtype, tf32: bool, blocked: bool, target: Target) -> Iterator[GemmConfig]:
    """What is worth trying for a group."""
    candidates = _group_tiles(dtype, tf32, blocked, target)
    narrow = [one for one in candidates if one.tile[1] < 2 * n] or candidates[-1:]
    for one, latency, group in itertools.product(narrow, (1, 2, 4, 8), (4, 8, 16)):
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
