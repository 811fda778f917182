"""Atomic read-modify-write operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from cuda.tile._ir.ops import AtomicRMWMode, TileAtomicCAS, TileAtomicRedView, TileAtomicRMW
from torch import Tensor

from tilegym_cutile_cpu.handlers.arithmetic import binary
from tilegym_cutile_cpu.handlers.views import access
from tilegym_cutile_cpu.lowering import Compute, Frame, Lowering, effect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cuda.tile._datatype import DType

    from tilegym_cutile_cpu.arrays import Pointer, TiledView

_ARITHMETIC = {
    AtomicRMWMode.ADD_INT: "add",
    AtomicRMWMode.ADD_FLOAT: "add",
    AtomicRMWMode.MAX_SIGNED_INT: "max",
    AtomicRMWMode.MIN_SIGNED_INT: "min",
    AtomicRMWMode.MAX_UNSIGNED_INT: "max",
    AtomicRMWMode.MIN_UNSIGNED_INT: "min",
}
_BITWISE = {
    AtomicRMWMode.BITWISE_AND: torch.bitwise_and,
    AtomicRMWMode.BITWISE_OR: torch.bitwise_or,
    AtomicRMWMode.BITWISE_XOR: torch.bitwise_xor,
}


def _update(mode: AtomicRMWMode, dtype: DType) -> Callable[[Tensor, Tensor], Tensor]:
    if mode is AtomicRMWMode.EXCHANGE:
        return lambda _old, new: new
    return _BITWISE[mode] if mode in _BITWISE else binary(_ARITHMETIC[mode], dtype)


@effect(TileAtomicRMW)
def tile_atomic_rmw(op: TileAtomicRMW, lowering: Lowering) -> Compute:
    how, update = access(op, lowering), _update(op.mode, op.update.get_type().dtype)

    def rmw(frame: Frame, pointer: Pointer, operand: Tensor, mask: Tensor | None) -> Tensor:
        return frame.memory.update(pointer, mask, update, how, operand)

    return rmw


@effect(TileAtomicCAS)
def tile_atomic_cas(op: TileAtomicCAS, lowering: Lowering) -> Compute:
    how = access(op, lowering)

    def update(old: Tensor, expected: Tensor, desired: Tensor) -> Tensor:
        return torch.where(old == expected, desired, old)

    def cas(frame: Frame, pointer: Pointer, expected: Tensor, desired: Tensor, mask: Tensor | None) -> Tensor:
        return frame.memory.update(pointer, mask, update, how, expected, desired)

    return cas


@effect(TileAtomicRedView)
def tile_atomic_red_view(op: TileAtomicRedView, lowering: Lowering) -> Compute:
    how, update = access(op, lowering), _update(op.mode, op.update.get_type().dtype)

    def reduce(frame: Frame, view: TiledView, index: Sequence[Tensor], operand: Tensor) -> None:
        frame.memory.update_tile(view, [int(i) for i in index], update, how, operand)

    return reduce
