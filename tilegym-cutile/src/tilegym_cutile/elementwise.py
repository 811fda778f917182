"""Elementwise kernels: how arrays of one shape are walked in step, each element read and written once.

Kernels take the arrays `(*outer, N)`, then the sizes that `run` appends, and begin with `tiles.place`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import cuda.tile as ct

from tilegym_cutile import tiles
from tilegym_cutile.rows import RowConfig, as_split_rows, next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def forward_kernel(name: str, function: Callable[..., Any]) -> ct.kernel:
    """The kernel y = function(x, y.dtype), in float32 and rounded once; profilers show it as `name`."""

    def forward_tiles(
        x: Rows,
        y: Rows,
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: int,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[bool],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. x, y: (*outer, N), M rows."""
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        tiles.store(y, row, column, function(tiles.load(x, row, column, mask), y.dtype), mask)

    return named(name, forward_tiles)


def backward_kernel(name: str, function: Callable[..., Any]) -> ct.kernel:
    """The kernel dx = function(dy, x), in float32 and rounded once; profilers show it as `name`."""

    def backward_tiles(
        dy: Rows,
        x: Rows,
        dx: Rows,
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: int,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[bool],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. dy, x, dx: (*outer, N), M rows."""
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        gradient = tiles.load(dy, row, column, mask)
        tiles.store(dx, row, column, function(gradient, tiles.load(x, row, column, mask)), mask)

    return named(name, backward_tiles)


def named(name: str, function: Callable[..., None]) -> ct.kernel:
    """A kernel of this name; kernels made from one function would else be told apart by nothing."""
    function.__name__ = name
    return ct.kernel(function)


def in_step(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors of one shape as arrays (*outer, N), with as long rows as all allow; the last has no elements in common.

    N is one row of all elements if the tensors lie in memory alike and without gaps, in whatever order of dimensions;
    otherwise those last dimensions that are adjacent in all of them, and at least one.
    """
    last = tensors[-1]
    strides, elements = last.stride(), last.numel()
    span = 1 + sum((size - 1) * stride for size, stride in zip(last.shape, strides, strict=True))
    if span == elements and all(tensor.stride() == strides for tensor in tensors):
        return tuple(tensor.as_strided((1, elements), (elements, 1)) for tensor in tensors)
    columns = _adjacent(tensors)
    return tuple(as_split_rows(tensor, columns)[0] for tensor in tensors)


def _adjacent(tensors: tuple[Tensor, ...]) -> int:
    """How many of the last dimensions, at least one, lie in each tensor as in a contiguous one."""
    shape, stride = tensors[-1].shape, 1
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] != 1 and any(tensor.stride(d) != stride for tensor in tensors):
            return max(1, len(shape) - 1 - d)
        stride *= shape[d]
    return max(1, len(shape))


@functools.lru_cache(maxsize=1024)
def heuristic(m: int, n: int, target: Target) -> RowConfig:
    """The configuration for m rows of n columns: tiles of about 2048 elements, whatever the row's length."""
    columns = min(next_power_of_2(n), 2048)
    return RowConfig(chunked=True, rows=rows_per_block(m, columns, 2048, target.num_sms), columns=columns)


def run(kernel: ct.kernel, arrays: tuple[Tensor, ...]) -> None:
    """Run an elementwise kernel on arrays (*outer, N) of as many elements each."""
    elements, n = arrays[0].numel(), arrays[0].shape[-1]
    if elements == 0:
        return
    m = elements // n
    config = heuristic(m, n, target_of(arrays[0]))
    across = -(-n // config.columns)
    sizes = (m, n, across, config.rows, config.columns, *config.ragged(m, n))
    launch(kernel, (-(-m // config.rows) * across,), (*arrays, *sizes), hints=config.hints)
