"""Kernels that load tiles by TMA, and the same kernels for arrays that it cannot load.

An array parameter annotated `ct.Array` has sizes and strides of 32 bits, and the compiler loads its tiles by TMA where
their alignment allows it; with 64 bits, `tiles.Rows`, it never does.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

import cuda.tile as ct

from tilegym_cutile.signature import annotated_function
from tilegym_cutile.tiles import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_BEYOND_INT32 = 2**31


def fits_tma(*tensors: Tensor) -> bool:
    """Whether `fits` is true of each tensor."""
    return all(fits(tensor.shape, tensor.stride()) for tensor in tensors)


def fits(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether sizes and strides have 32 bits, and no dimension is expanded; alignment is the compiler's matter."""
    return has_32_bits(shape, strides) and all(
        stride > 0 or size <= 1 for size, stride in zip(shape, strides, strict=True)
    )


def has_32_bits(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether sizes and strides have 32 bits, so that a kernel's `ct.Array` holds them."""
    return max(*shape, *strides) < _BEYOND_INT32


def widened(kernel: ct.kernel) -> ct.kernel:
    """The same kernel with `tiles.Rows` wherever it has `ct.Array`: for arrays of any size and strides."""
    narrow = annotated_function(kernel).pyfunc
    wide = types.FunctionType(narrow.__code__, {**narrow.__globals__, "Rows": Rows}, narrow.__name__ + "_wide")
    wide.__annotations__ = {name: kind.replace("ct.Array", "Rows") for name, kind in narrow.__annotations__.items()}
    return ct.kernel(wide)
