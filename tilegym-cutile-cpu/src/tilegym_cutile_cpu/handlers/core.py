"""Constants, block indices, and operations that only tell the compiler something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
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
from cuda.tile._ir.type import TileTy
from torch import Tensor

from tilegym_cutile_cpu.lowering import ERASED, Compute, Frame, Lowering, effect, plain, pure
from tilegym_cutile_cpu.values import compute_dtype, constant, scalar

if TYPE_CHECKING:
    from tilegym_cutile_cpu.arrays import Pointer

# Blocks and launches run one after another, so tokens and the waits between dependent grids have nothing to do.
ERASED.update((MakeToken, JoinTokens, GridDependencyControlWait, GridDependencyControlLaunchDependents))


@pure(TypedConst)
def typed_const(op: TypedConst) -> Compute:
    """Only tiles are values; the name of a function or a dtype, which debug mode meets, is the compiler's affair."""
    ty = op.result_var.get_type()
    tile = constant(op.value, ty.tensor_dtype(), ty.tensor_shape()) if isinstance(ty, TileTy) else None
    return lambda: tile


@plain(Assign, ForeignPointerCast)
def same_value(x: Tensor | Pointer) -> Tensor | Pointer:
    return x


@pure(AssumeDivBy)
def assume_divisible(op: AssumeDivBy) -> Compute:
    """The address of an array is divisible by what its signature says; an integer by what the kernel promised."""
    divisor = op.divisor

    def check(x: Tensor | Pointer) -> Tensor | Pointer:
        if isinstance(x, Tensor) and int(x) % divisor:
            raise ValueError(f"{int(x)} is not divisible by {divisor}, as ct.assume_divisible_by promised")
        return x

    return check


@pure(AssumeBounded)
def assume_bounded(op: AssumeBounded) -> Compute:
    """The compiler assumes that no extent or stride is negative. A slice can break that."""
    low, high = op.lower_bound, op.upper_bound

    def check(x: Tensor) -> Tensor:
        number = int(x)
        if (low is not None and number < low) or (high is not None and number > high):
            raise ValueError(
                f"an extent or stride of {number} is outside the bounds {low} and {high} that it must keep"
            )
        return x

    return check


@plain(MakeDummy)
def make_dummy() -> None:
    """A variable that no path defines: nothing reads it."""


@pure(TileArange)
def tile_arange(op: TileArange) -> Compute:
    ty = op.result_var.get_type()
    tile = torch.arange(ty.shape[0]).to(compute_dtype(ty.dtype))
    return lambda: tile


@effect(TileBid)
def tile_bid(op: TileBid, _lowering: Lowering) -> Compute:
    axis = op.axis

    def block_index(frame: Frame) -> Tensor:
        return scalar(frame.block[axis], torch.int32)

    return block_index


@effect(TileNumBlocks)
def tile_num_blocks(op: TileNumBlocks, _lowering: Lowering) -> Compute:
    axis = op.axis

    def block_count(frame: Frame) -> Tensor:
        return scalar(frame.grid[axis], torch.int32)

    return block_count
