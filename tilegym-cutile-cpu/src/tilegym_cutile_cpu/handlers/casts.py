"""Conversions between dtypes, and the same bits seen as another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch
from cuda.tile._ir.arithmetic_ops import TileAsType
from cuda.tile._ir.ops import TileBitCast, TilePack, TileUnpack
from torch import Tensor

from tilegym_cutile_cpu.lowering import Compute, pure
from tilegym_cutile_cpu.values import cast, decode, encode, memory_dtype

if TYPE_CHECKING:
    from cuda.tile._datatype import DType


@pure(TileAsType)
def tile_astype(op: TileAsType) -> Compute:
    source, target, rounding = op.x.get_type().tensor_dtype(), op.result_var.get_type().tensor_dtype(), op.rounding_mode
    return lambda x: cast(x, source, target, rounding)


@pure(TileBitCast)
def tile_bitcast(op: TileBitCast) -> Compute:
    source, target = op.x.get_type().tensor_dtype(), op.result_var.get_type().tensor_dtype()
    return lambda x: decode(encode(x, source).contiguous().view(memory_dtype(target)), target)


@pure(TilePack)
def tile_pack(op: TilePack) -> Compute:
    source = op.x.get_type().tensor_dtype()

    def pack(x: Tensor) -> Tensor:
        bits = encode(x, source).contiguous()
        if source == ct.float4_e2m1fn:
            return bits[0::2] | (bits[1::2] << 4)
        return bits.view(torch.uint8)

    return pack


@pure(TileUnpack)
def tile_unpack(op: TileUnpack) -> Compute:
    target: DType = op.result_var.get_type().tensor_dtype()

    def unpack(x: Tensor) -> Tensor:
        if target == ct.float4_e2m1fn:
            return decode(torch.stack((x & 15, x >> 4), dim=-1).reshape(-1), target)
        return decode(x.contiguous().view(memory_dtype(target)), target)

    return unpack
