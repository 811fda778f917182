"""Constants, block indices, and operations that only tell the compiler something."""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile._ir.cast_ops import AddrSpaceCast, ReinterpretPointer
from cuda.tile._ir.control_flow_ops import MakeDummy
from cuda.tile._ir.core_ops import Assign, TypedConst
from cuda.tile._ir.ops import (
    AssumeBounded,
    AssumeDivBy,
    ForeignPointerCast,
    GridDependencyControlLaunchDependents,
    GridDependencyControlWait,
    JoinTokens,
    MakeToken,
    TileArange,
    TileBid,
    TileNumBlocks,
)
from torch import Tensor

from tilegym_cutile_cpu.lowering import ERASED, Frame, Kernel, Lowering, effect, pure
from tilegym_cutile_cpu.values import compute_dtype, constant

# Blocks and launches run one after another, so tokens and the waits between dependent grids have nothing to do.
ERASED.update((MakeToken, JoinTokens, GridDependencyControlWait, GridDependencyControlLaunchDependents))


@pure(TypedConst)
def typed_const(op: TypedConst) -> Kernel:
    ty = op.result_var.get_type()
    tile = constant(op.value, ty.dtype, ty.shape)
    return lambda: tile


@pure(Assign, AssumeBounded, AssumeDivBy, AddrSpaceCast, ReinterpretPointer, ForeignPointerCast)
def same_value(op: Any) -> Kernel:
    return lambda x: x


@pure(MakeDummy)
def make_dummy(op: MakeDummy) -> Kernel:
    """A variable that no path defines: nothing reads it."""
    return lambda: None


@pure(TileArange)
def tile_arange(op: TileArange) -> Kernel:
    ty = op.result_var.get_type()
    tile = torch.arange(ty.shape[0]).to(compute_dtype(ty.dtype))
    return lambda: tile


@effect(TileBid)
def tile_bid(op: TileBid, lowering: Lowering) -> Kernel:
    axis = op.axis

    def block_index(frame: Frame) -> Tensor:
        return torch.tensor(frame.block[axis], dtype=torch.int32)

    return block_index


@effect(TileNumBlocks)
def tile_num_blocks(op: TileNumBlocks, lowering: Lowering) -> Kernel:
    axis = op.axis

    def block_count(frame: Frame) -> Tensor:
        return torch.tensor(frame.grid[axis], dtype=torch.int32)

    return block_count
