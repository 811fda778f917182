"""Configurations of attention, forward and backward: how large tiles are, and how a block goes about them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Hints, Target
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionConfig:
    """How a block goes about attention."""

    queries: int
    """Queries of a tile: a power of two."""
    keys: int
    """Keys of a tile: a power of two."""
    latency: int = 0
    """The hint of the loads in the loop, from 1 to 10: how far ahead they are, and so how much shared memory they take;
    0 leaves it to the compiler."""
    one_loop: bool = False
    """Whether one loop goes over all tiles and asks of each whether it needs a mask, rather than one for each kind."""
    hints: Hints = Hints()  # noqa: RUF009 - frozen

    def constants(self, columns: int, second: int) -> tuple[Any, ...]:
        """The kernels' constants about tiles, for heads in tiles of so many columns, of the second pair too."""
        return self.queries, self.keys, columns, max(1, second), self.latency, self.one_loop


def tile_columns(size: int) -> int:
    """Columns of a tile that holds a head."""
    return max(16, next_power_of_2(size))


_FORWARD_TILES = ((64, 128, 4), (64, 64, 4), (128, 128, 8), (128, 64, 8), (128, 128, 4), (128, 64, 4))
"""Queries, keys and warps that are worth timing."""


def forward_space(size: int, target: Target) -> Iterator[AttentionConfig]:
    """The configurations worth timing for heads of `size` columns."""
    more_blocks = [(None, 2, 2), (None, 4 if size <= 64 else 3, 2)]  # less memory for each
    alone = [(None, None, 0), (None, None, 2), *more_blocks]
    together = [(2, 2, 0), (2, 2, 2)] if target.capability[0] in (9, 10) else []  # each SM loads half of the keys
    ways = itertools.product(_FORWARD_TILES, [*alone, *together], (False, True))
    for (m, n, warps), (ctas, occupancy, latency), one_loop in ways:
        if m * (n + size) <= 256 * 256 and (ctas is None or (m, warps) == (128, 4)):
            hints = Hints(num_ctas=ctas, occupancy=occupancy, num_worker_warps=warps)
            yield AttentionConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints)


@tuned("attention", space=forward_space, bucketed=("rows", "keys"))
def forward_heuristic(
    rows: int, keys: int, size: int, second: int, dtype: torch.dtype, target: Target, *, causal: bool, capped: bool
) -> AttentionConfig:
    """The forward's configuration for all rows of queries and so many keys, from what an H200 likes.

    Args:
        rows: queries of all heads and batches.
        keys: how many a query sees at most.
        size: columns of a tile of q, k and v.
        second: those of the second pair, 0 without.
        dtype: theirs.
        target: the device.
        causal: whether what a query sees has an end.
        capped: whether scores go through a tanh.
    """
    best = _best(size, second, dtype, target, causal=causal, capped=capped)
    m, n = _short_tiles(rows, keys, best.queries, best.keys, target)
    if m == best.queries:
        return replace(best, keys=n)
    return AttentionConfig(queries=m, keys=n, hints=Hints(num_worker_warps=4 if m * size <= 64 * 128 else 8))


def _short_tiles(own: int, other: int, m: int, n: int, target: Target) -> tuple[int, int]:
    """Tiles of m rows that blocks own and n that they go over, or smaller ones where there are few of them.

    So that each SM gets two blocks, if 64 rows a block suffice for that, and each block four tiles to go over.
    """
    enough = next_power_of_2(own // (2 * target.num_sms) + 1) // 2
    return min(m, max(64, enough)), min(n, max(16, next_power_of_2(other) // 4))


def _best(size: int, second: int, dtype: torch.dtype, target: Target, *, causal: bool, capped: bool) -> AttentionConfig:
    """For long sequences."""
    m, n, latency, one_loop, hints = 64, 64, 0, False, Hints(num_worker_warps=4)
    if dtype == torch.float32:
        n, hints = 32 if size <= 128 else 16, Hints(num_worker_warps=8)
    elif target.capability[0] != 9:
        n = 64 if size <= 128 else 32 if target.capability[0] == 8 else 16
        hints = Hints(num_worker_warps=4 if size <= 256 else 8)
    elif size + second > 256:
        n, hints = 64 if size <= 256 else 32, Hints(num_worker_warps=8)
    elif size > 128:
        precious = capped or dtype.itemsize == 1
        m, n, one_loop, hints = 128, 64 if precious else 128, not precious, Hints(num_worker_warps=8)
        latency = 0 if precious else 2
    elif size > 64 and second:
        m, n, hints = 128, 128, Hints(num_worker_warps=8)
    elif size > 64:
        n, one_loop, hints = 128, True, Hints(occupancy=2, num_worker_warps=4)
    elif causal:
        one_loop, hints = True, Hints(occupancy=4, num_worker_warps=4)
    else:
        n, latency, hints = 128, 2, Hints(occupancy=2, num_worker_warps=4)
    return AttentionConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeysConfig(AttentionConfig):
    """How the pass that owns keys goes about them."""

    apart: bool = False
    """Whether dk and dv have a launch each, which makes the weights once more, but has fewer sums in registers."""


_BACKWARD_TILES = (
    (64, 128, 8),
    (128, 64, 8),
    (128, 128, 8),
    (64, 64, 8),
    (64, 64, 4),
    (64, 32, 4),
    (32, 64, 4),
    (32, 64, 8),
)
"""Rows that a block goes over, rows that it owns, and warps, that are worth timing."""


def _pairs(size: int) -> Iterator[tuple[int, int, int, Hints]]:
    """Rows that a block goes over, rows that it owns, how far loads are ahead, and hints."""
    for (other, own, warps), (occupancy, latency) in itertools.product(_BACKWARD_TILES, ((None, 0), (2, 1))):
        if (other + own) * size <= 256 * 128:
            yield other, own, latency, Hints(occupancy=occupancy, num_worker_warps=warps)


def keys_space(size: int) -> Iterator[KeysConfig]:
    """The configurations worth timing for heads of `size` columns."""
    ways = ((False, False), (False, True), (True, False))
    for (m, n, latency, hints), (apart, one_loop) in itertools.product(_pairs(size), ways):
        yield KeysConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints, apart=apart)


@tuned("attention_backward_keys", space=keys_space, bucketed=("rows", "queries"))
def keys_heuristic(rows: int, queries: int, size: int, second: int, dtype: torch.dtype, target: Target) -> KeysConfig:
    """The configuration of the pass that owns keys.

    Args:
        rows: keys of all of their heads and batches.
        queries: S.
        size: columns of a tile of q, k and v.
        second: those of the second pair, 0 without.
        dtype: theirs.
        target: the device.
    """
    large, registers = size > 128, target.capability[0] in (8, 12)  # where operands of products come from registers
    latency, occupancy, one_loop = 0, None, False
    apart = size + second > (64 if registers else 128)
    if dtype == torch.float32:
        m, n, warps = 16 if large else 32, 64, 8
    elif registers:
        m, n, warps = 32, 64, 4 if target.capability[0] == 8 else 8
    elif target.capability[0] == 9 and not large and (size <= 64 or second):
        m, n, warps, apart, one_loop = 64, 128, 8, False, True
    elif target.capability[0] == 9 and not large:
        m, n, warps, latency, occupancy = 64, 64, 4, 1, 2
    else:
        m, n, warps = 64 if size <= 256 else 16, 64, 8 if target.capability[0] == 10 else 4
    whole = m, n
    n, m = _short_tiles(rows, queries, n, m, target)
    if (m, n) != whole and target.capability[0] == 9 and dtype != torch.float32 and not second and size <= 256:
        m, n, warps = 64, 64, 4  # which, of those of this size, do not spill
        latency, occupancy = (0, None) if large else (1, 2)
    one_loop = one_loop or n < whole[1]  # small tiles with a loop for each kind spill
    hints = Hints(occupancy=occupancy, num_worker_warps=warps)
    return KeysConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints, apart=apart)


def queries_space(size: int) -> Iterator[AttentionConfig]:
    """The configurations worth timing for heads of `size` columns."""
    for (n, m, latency, hints), one_loop in itertools.product(_pairs(size), (False, True)):
        yield AttentionConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints)


@tuned("attention_backward_queries", space=queries_space, bucketed=("rows", "keys"))
def queries_heuristic(
    rows: int, keys: int, size: int, second: int, dtype: torch.dtype, target: Target
) -> AttentionConfig:
    """The configuration of the pass that owns queries, of which there are `rows` in all; otherwise as above."""
    latency, occupancy, one_loop = 0, None, False
    if dtype == torch.float32:
        m, n, warps = 64, 32 if size + second <= 128 else 16, 8
    elif target.capability[0] == 9 and size <= 128:
        m, n, warps, one_loop = 128, 64, 8, True
        if size > 64 and not second:
            m, warps, one_loop, latency, occupancy = 64, 4, False, 1, 2
    elif target.capability[0] == 9:
        m, n, warps = (128, 32, 8) if size <= 256 and not second else (64, 32, 8)
    elif target.capability[0] == 10:
        m, n, warps = 64, 64 if size <= 128 else 32, 4
    else:
        m, n, warps = 64, 32, 8
    m, n = _short_tiles(rows, keys, m, n, target)
    hints = Hints(occupancy=occupancy, num_worker_warps=warps)
    return AttentionConfig(queries=m, keys=n, latency=latency, one_loop=one_loop, hints=hints)
