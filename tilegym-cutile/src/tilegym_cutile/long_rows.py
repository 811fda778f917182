"""Rows too long for registers: a kernel that goes through them in groups of columns, and is always loading.

What becomes of a row is passed to it as small pure functions, as softmax and its backward do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct

from tilegym_cutile import tiles
from tilegym_cutile.elementwise import named
from tilegym_cutile.rows import RowConfig, previous_power_of_2, ragged, vector
from tilegym_cutile.runtime import Hints, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_GROUP_REGISTERS = 2**14
"""Those of what an SM's blocks load at once: two of it, this and the next, fill half of them."""


def kernel(
    name: str,
    start: Callable[..., Any],
    join: Callable[..., Any],
    finish: Callable[..., Any],
    value: Callable[..., Any],
    *,
    padding: float,
) -> ct.kernel:
    """A kernel of rows too long for registers; profilers show it as `name`.

    Args:
        name: the kernel's.
        start: of COLUMNS, what the columns of a chunk begin a row with, (1, COLUMNS).
        join: that, with a group of the row among it: of each array read, a tile (CHUNKS, COLUMNS), as it is stored.
        finish: of what came of the whole row, and the results' dtype, what the results need.
        value: of a group, what `finish` found, and the results' dtype, the results.
        padding: what is read beyond a row's end.
    """

    def chunks(
        read: tuple[Rows, ...],
        y: Rows,
        N: int,
        groups: int,
        CHUNKS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED: ct.Constant[int],
    ) -> None:
        """One block: every num_blocks(0)-th row, in groups of CHUNKS chunks of COLUMNS. read: (*outer, N), y: (M, N).

        There are so many whole groups, at least one, and if RAGGED a rest. The next group, of this row or the next one,
        is always being loaded. The last of a row is kept in registers; the others are read once more, backwards: what
        was read last is still in the cache, where few rows at a time have room.
        """
        M = y.shape[0]
        lane = (ct.arange(CHUNKS, dtype=ct.int32) * COLUMNS)[:, None] + ct.arange(COLUMNS, dtype=ct.int32)[None, :]
        width, rest = CHUNKS * COLUMNS, groups * (CHUNKS * COLUMNS) + lane

        def load(number: Any, column: Any, mask: Any) -> Any:
            row = tiles.row_numbers(number, 1)
            loaded: Any = ()
            for array in ct.static_iter(read):
                loaded = (*loaded, tiles.load_as_stored(array, row, column, mask, padding=padding))
            return loaded

        def store(number: Any, column: Any, loaded: Any, found: Any, mask: Any) -> None:
            tiles.store(y, tiles.row_numbers(number, 1), column, value(loaded, found, y.dtype), mask)

        following = load(ct.bid(0), lane, None)
        for number in range(ct.bid(0), M, ct.num_blocks(0)):
            state = start(COLUMNS)
            if RAGGED:
                inside = tiles.inside(rest, N, RAGGED)
                state = join(state, load(number, rest, inside))
            current = following
            for group in range(1, groups):
                following = load(number, group * width + lane, None)
                state = join(state, current)
                current = following
            found = finish(join(state, current), y.dtype)
            for turn in range(1, groups):
                group = groups - 1 - turn
                following = load(number, group * width + lane, None)
                store(number, (group + 1) * width + lane, current, found, None)
                current = following
            following = load(min(number + ct.num_blocks(0), M - 1), lane, None)
            store(number, lane, current, found, None)
            if RAGGED:
                store(number, rest, load(number, rest, inside), found, inside)

    return named(name, chunks)


def heuristic(n: int) -> RowConfig:
    """The configuration for rows of n columns, from what an H200 likes.

    Where there is a rest, which is loaded apart, another block had better be at work meanwhile.
    """
    hints = Hints(occupancy=2 if n % (2 * _GROUP_REGISTERS) else 1, num_worker_warps=8)
    return RowConfig(chunked=True, rows=1, columns=min(previous_power_of_2(n), 2048), hints=hints)


def run(made: ct.kernel, read: tuple[Tensor, ...], y: Tensor, config: RowConfig) -> None:
    """Run what `kernel` made, on arrays (*outer, N) and y: (M, N)."""
    m, n = y.shape
    packed = max(1, 4 // y.element_size()) if vector(*read, y) > 1 else 1  # elements in a register
    at_once = _GROUP_REGISTERS // (config.hints.occupancy or 1) * packed // len(read)
    chunks = previous_power_of_2(max(1, min(n, at_once) // config.columns))
    width = chunks * config.columns
    sizes = (n, n // width, chunks, config.columns, ragged(n, width))
    launch(made, (min(m, 2 * target_of(y).num_sms),), (read, y, *sizes), hints=config.hints)
