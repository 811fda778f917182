"""Gated activations, activation(gate) * up: the kernels that silu_and_mul, swiglu and geglu share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct  # noqa: TC002 - kernels' annotations are read at run time

from tilegym_cutile import activations, tiles
from tilegym_cutile.elementwise import named
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from collections.abc import Callable


def _forward_kernel(name: str, activation: Callable[..., Any]) -> ct.kernel:
    """The kernel y = activation(gate) * up; profilers show it as `name`."""

    def forward_tiles(
        gate: Rows,
        up: Rows,
        y: Rows,
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: int,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[bool],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. gate, up, y: (*outer, N), M rows."""
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        gate_tile = tiles.load(gate, row, column, mask)
        up_tile = tiles.load(up, row, column, mask)
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
        M: ct.ScalarInt64[int],
        N: ct.ScalarInt64[int],
        across: int,
        ROWS: ct.Constant[int],
        COLUMNS: ct.Constant[int],
        RAGGED_ROWS: ct.Constant[bool],
        RAGGED_COLUMNS: ct.Constant[bool],
    ) -> None:
        """One block: one tile of ROWS x COLUMNS. All arrays: (*outer, N), M rows."""
        row, column, mask = tiles.place(M, N, across, ROWS, COLUMNS, RAGGED_ROWS, RAGGED_COLUMNS)
        activated, slope = activation_and_slope(tiles.load(gate, row, column, mask))
        up_tile = tiles.load(up, row, column, mask)
        gradient = tiles.load(dy, row, column, mask)
        tiles.store(dgate, row, column, gradient * up_tile * slope, mask)
        tiles.store(dup, row, column, gradient * activated, mask)

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
