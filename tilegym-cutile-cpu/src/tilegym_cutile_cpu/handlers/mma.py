"""Matrix multiply and accumulate."""

from __future__ import annotations

import cuda.tile as ct
import torch
from cuda.tile._datatype import DType, is_integral
from cuda.tile._ir.ops import TileMma, TileMmaScaled
from torch import Tensor

from tilegym_cutile_cpu.lowering import Compute, plain, pure


@pure(TileMma)
def tile_mma(op: TileMma) -> Compute:
    """Products are summed in float32 (float64 for float64), and rounded to the accumulator's dtype once."""
    inputs: DType = op.x.get_type().dtype
    if is_integral(inputs):
        return _integer_mma
    wide = torch.float64 if inputs == ct.float64 else torch.float32

    def mma(x: Tensor, y: Tensor, acc: Tensor) -> Tensor:
        return (torch.matmul(x.to(wide), y.to(wide)) + acc).to(acc.dtype)

    return mma


def _integer_mma(x: Tensor, y: Tensor, acc: Tensor) -> Tensor:
    """Exact in float64, whose matrix product is many times faster than torch's for integers."""
    return acc + torch.matmul(x.double(), y.double()).to(torch.int64).to(torch.int32)


@plain(TileMmaScaled)
def tile_mma_scaled(x: Tensor, x_scale: Tensor, y: Tensor, y_scale: Tensor, acc: Tensor) -> Tensor:
    """Each block of consecutive elements along K is multiplied by its scale."""
    x_block, y_block = x.shape[-1] // x_scale.shape[-1], y.shape[-2] // y_scale.shape[-2]
    scaled_x = x * x_scale.repeat_interleave(x_block, -1)
    scaled_y = y * y_scale.repeat_interleave(y_block, -2)
    return torch.matmul(scaled_x, scaled_y) + acc
