"""Elementwise kernels: how arrays of one shape are walked in step, each element read and written once.

Kernels take the arrays `(*outer, N)`, then the sizes that `run` appends, and begin with `tiles.place`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cuda.tile as ct

from tilegym_cutile import tiles
from tilegym_cutile.rows import as_split_rows, divisor, grid, next_power_of_2, ragged, rows_per_block
from tilegym_cutile.runtime import Hints, Target, executor_of, with_hints
from tilegym_cutile.tiles import Divisor, Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import cached, tuned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor


_LARGEST_TILE = 4096
_SMALLEST_TILE = 1024
"""Bytes of a block: of small tensors, each of its threads loads 8."""


def forward_kernel(name: str, function: Callable[..., Any]) -> ct.kernel:
    """The kernel y = function(x, y.dtype), in float32 and rounded once; profilers show it as `name`."""

    def forward_tiles(
        x: Rows,
        y: Rows,
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: Divisor,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[int],
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
        across: Divisor,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[int],
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
    strides = last.stride()
    if len(strides) == 2 and strides[1] == 1 and last.shape[1] % _LARGEST_TILE == 0:
        return tensors  # rows of whole tiles: longer ones would be no better, and views cost time
    if _is_dense(last) and all(tensor.stride() == strides for tensor in tensors):
        elements = last.numel()
        return tuple([tensor.as_strided((1, elements), (elements, 1)) for tensor in tensors])
    columns = _adjacent(tensors)
    return tuple([as_split_rows(tensor, columns)[0] for tensor in tensors])


def _is_dense(tensor: Tensor) -> bool:
    """Whether a tensor without common elements has no gaps between them either."""
    if tensor.is_contiguous():
        return True
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in sizes) == tensor.numel()


def _adjacent(tensors: tuple[Tensor, ...]) -> int:
    """How many of the last dimensions, at least one, lie in each tensor as in a contiguous one."""
    shape, stride = tensors[-1].shape, 1
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] != 1 and any(tensor.stride(d) != stride for tensor in tensors):
            return max(1, len(shape) - 1 - d)
        stride *= shape[d]
    return max(1, len(shape))


@dataclass(frozen=True, kw_only=True, slots=True)
class TileConfig:
    """What a block takes."""

    elements: int
    hints: Hints


def search_space(m: int, n: int, itemsize: int, target: Target) -> Iterator[TileConfig]:
    """What is worth trying: with still larger tiles, few SMs would have all."""
    most = 8 * share(m, n, itemsize, target)
    for tile, warps in itertools.product((256, 512, 1024, 2048, 4096, 8192), (None, 8)):
        if tile <= most:
            yield TileConfig(elements=tile, hints=Hints(num_worker_warps=warps))


@tuned("elementwise", space=search_space, bucketed=("m", "n"))
def heuristic(
    kernel: ct.kernel,  # noqa: ARG001 - tells tuned configurations apart
    m: int,
    n: int,
    itemsize: int,
    target: Target,
    *,
    elements: int,
) -> TileConfig:
    """For m rows of n columns, tiles of so many elements, or fewer lest an SM go without."""
    return TileConfig(elements=min(elements, share(m, n, itemsize, target)), hints=Hints())


def share(m: int, n: int, itemsize: int, target: Target) -> int:
    """Elements of a block of four that an SM has if all have some, but no fewer than are worth a block."""
    return max(_SMALLEST_TILE // itemsize, next_power_of_2(-(-m * n // target.num_sms)) // 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A launch but for its arrays."""

    kernel: ct.kernel
    grid: tuple[int, int, int]
    sizes: tuple[Any, ...]
    """What `tiles.place` takes."""


@cached
def plan(kernel: ct.kernel, m: int, n: int, itemsize: int, elements: int, target: Target) -> Plan:
    """How m rows of n columns are shared out, where a kernel likes tiles of so many elements."""
    config = heuristic(kernel, m, n, itemsize, target, elements=elements)
    columns = min(next_power_of_2(n), config.elements)
    rows = rows_per_block(m, columns, config.elements, target.num_sms)
    across = -(-n // columns)
    blocks, more = grid(-(-m // rows) * across)
    sizes = (m, n, divisor(across), rows, columns, more or m % rows != 0, ragged(n, columns))
    return Plan(kernel=with_hints(kernel, config.hints), grid=blocks, sizes=sizes)


def run(
    kernel: ct.kernel,
    arrays: tuple[Tensor, ...],
    more: tuple[int, ...] = (),
    *,
    n: int | None = None,
    elements: int = 2048,
) -> None:
    """Run an elementwise kernel on arrays (*outer, N), and further arguments.

    `n`: how many columns there are, if fewer than the last array has; `elements`: how many a tile has.
    """
    last = arrays[-1]
    width, total = last.shape[-1], last.numel()
    if total == 0:
        return
    executor = executor_of(last)
    made = plan(kernel, total // width, width if n is None else n, last.element_size(), elements, executor.target)
    executor.launch(made.kernel, made.grid, (*arrays, *more, *made.sizes))


def _same(x: Any, dtype: Any) -> Any:  # noqa: ARG001 - all functions of `forward_kernel` are called alike
    return x


_COPY = forward_kernel("copy_tiles", _same)


def copy(source: Tensor, target: Tensor) -> None:
    """Write a tensor into one of its shape, rounded to that one's dtype."""
    run(_COPY, in_step(source, target))
