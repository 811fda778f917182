"""Gated activations, activation(gate) * up: the kernels that silu_and_mul, swiglu and geglu share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct

from tilegym_cutile import activations, tiles
from tilegym_cutile.elementwise import named
from tilegym_cutile.tiles import Divisor, Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ALIGNMENT: Final = 16
"""Elements: of any dtype, enough for the widest loads there are."""


def _forward_kernel(name: str, activation: Callable[..., Any]) -> ct.kernel:
    """The kernel y = activation(gate) * up; profilers show it as `name`."""

    def forward_tiles(
        gate: Rows,
        up: Rows,
        y: Rows,
        up_start: ct.ScalarInt64[int],
        ALIGNMENT: ct.Constant[int],
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: Divisor,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[int],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. y: (*outer, N), M rows.

        gate, up: the first N columns, and those from up_start on, a multiple of ALIGNMENT: two tensors or one's halves.
        """
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        gate_tile = tiles.load(gate, row, column, mask)
        up_tile = tiles.load(up, row, ct.assume_divisible_by(up_start, ALIGNMENT) + column, mask)
        tiles.store(y, row, column, activation(gate_tile, y.dtype) * up_tile, mask)

    return named(name, forward_tiles)


def _backward_kernel(name: str, activation_and_slope: Callable[..., Any]) -> ct.kernel:
    """The kernel of the gradients of gate and up; profilers show it as `name`."""

    def backward_tiles(
        gate: Rows,
        up: Rows,
        dy: Rows,
        dgate: Rows,
        dup: Rows,
        up_start: ct.ScalarInt64[int],
        ALIGNMENT: ct.Constant[int],
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: Divisor,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[int],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. dy: (*outer, N), M rows; dgate, dup: as gate, up of the forward."""
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        up_column = ct.assume_divisible_by(up_start, ALIGNMENT) + column
        activated, slope = activation_and_slope(tiles.load(gate, row, column, mask))
        up_tile = tiles.load(up, row, up_column, mask)
        gradient = tiles.load(dy, row, column, mask)
        tiles.store(dgate, row, column, gradient * up_tile * slope, mask)
        tiles.store(dup, row, up_column, gradient * activated, mask)

    return named(name, backward_tiles)


SILU = _forward_kernel("silu_and_mul_tiles", activations.silu)
SILU_BACKWARD = _backward_kernel("silu_and_mul_backward_tiles", activations.silu_and_slope)
GELU = {
    "none": _forward_kernel("gelu_and_mul_tiles", activations.gelu),
    "tanh": _forward_kernel("gelu_tanh_and_mul_tiles", activations.gelu_tanh),
}
GELU_BACKWARD = {
    "none": _backward_kernel("gelu_and_mul_backward_tiles", activations.gelu_and_slope),
    "tanh": _backward_kernel("gelu_tanh_and_mul_backward_tiles", activations.gelu_tanh_and_slope),
}


def halves(half: int) -> tuple[int, int]:
    """Where up starts, and what divides that, if gate and up are the halves of rows of 2 `half` columns."""
    return half, math.gcd(half, _MOST_ALIGNMENT)


APART = (0, _MOST_ALIGNMENT)
"""The same if they are arrays of their own."""
