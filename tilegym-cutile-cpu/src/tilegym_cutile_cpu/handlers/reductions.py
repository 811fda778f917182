"""Reductions and scans. Both combine in a tree, as a GPU does, with the kernel's own function at every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.tile._datatype import is_float
from cuda.tile._ir.arithmetic_ops import RawBinaryArithmeticOperation
from cuda.tile._ir.control_flow_ops import EndBranch
from cuda.tile._ir.ops import TileReduce, TileScan
from torch import Tensor

from tilegym_cutile_cpu.lowering import Compute, Frame, Lowering, effect
from tilegym_cutile_cpu.values import compute_dtype

Tiles = Sequence[Tensor]
Combine = Callable[[Frame, Tiles, Tiles], Tiles]


@effect(TileReduce)
def tile_reduce(op: TileReduce, lowering: Lowering) -> Compute:
    axis, combine, whole = op.axis, _combine(op, lowering), _whole_axis(op)

    def reduce(frame: Frame, xs: Tiles) -> Any:
        if whole is not None:
            return whole(xs[0], axis)
        while (length := xs[0].shape[axis]) > 1:
            half = length // 2
            xs = combine(frame, [x.narrow(axis, 0, half) for x in xs], [x.narrow(axis, half, half) for x in xs])
        results = [x.squeeze(axis) for x in xs]
        return results if len(results) > 1 else results[0]

    return reduce


@effect(TileScan)
def tile_scan(op: TileScan, lowering: Lowering) -> Compute:
    """Each turn combines elements twice as far apart: after log2(n) of them every element holds its whole prefix."""
    axis, combine = op.axis, _combine(op, lowering)

    def scan(frame: Frame, xs: Tiles) -> Any:
        if op.reverse:
            xs = [x.flip(axis) for x in xs]
        length, distance = xs[0].shape[axis], 1
        while distance < length:
            rest = length - distance
            earlier, later = [x.narrow(axis, 0, rest) for x in xs], [x.narrow(axis, distance, rest) for x in xs]
            heads = [x.narrow(axis, 0, distance) for x in xs]
            xs = [torch.cat(pair, axis) for pair in zip(heads, combine(frame, earlier, later), strict=True)]
            distance *= 2
        if op.reverse:
            xs = [x.flip(axis) for x in xs]
        return xs if len(xs) > 1 else xs[0]

    return scan


def _combine(op: TileReduce | TileScan, lowering: Lowering) -> Combine:
    """The body of the operation, which is written for scalars, run on whole tiles at once."""
    body = lowering.region(op.body)
    left, right = lowering.slots(op.body.params[0::2]), lowering.slots(op.body.params[1::2])

    def combine(frame: Frame, lhs: Tiles, rhs: Tiles) -> Tiles:
        for slot, value in zip((*left, *right), (*lhs, *rhs), strict=True):
            frame.values[slot] = value
        return [value.expand(lhs[0].shape) for value in body(frame).values]

    return combine


def _whole_axis(op: TileReduce) -> Callable[[Tensor, int], Tensor] | None:
    """The reduction of torch, where it gives what the tree would: a plain sum or extreme of float32 or float64."""
    if len(op.xs) != 1 or not is_float(op.xs[0].get_type().dtype):
        return None
    if compute_dtype(op.xs[0].get_type().dtype) not in (torch.float32, torch.float64):
        return None
    match op.body.operations:
        case (
            RawBinaryArithmeticOperation(fn=fn, rounding_mode=None, flush_to_zero=False, propagate_nan=nan),
            EndBranch(),
        ):
            if fn == "add":
                return torch.sum
            if fn in ("min", "max") and nan:
                return torch.amin if fn == "min" else torch.amax
            if fn in ("min", "max"):
                return _extreme_of_numbers(fn)
    return None


def _extreme_of_numbers(fn: str) -> Callable[[Tensor, int], Tensor]:
    """The least or largest along an axis, with NaN left out unless there is nothing else."""
    pick, worst = (torch.amin, float("inf")) if fn == "min" else (torch.amax, float("-inf"))

    def extreme(x: Tensor, axis: int) -> Tensor:
        result = pick(x, axis)
        if not bool(result.isnan().any()):
            return result
        numbers = pick(torch.where(x.isnan(), worst, x), axis)
        return torch.where(x.isnan().all(axis), result, numbers)

    return extreme
