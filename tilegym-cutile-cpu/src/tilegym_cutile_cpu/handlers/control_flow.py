"""Loops, branches, and the ways out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from cuda.tile._ir.control_flow_ops import Break, Continue, EndBranch, IfElse, Loop, Return
from torch import Tensor

from tilegym_cutile_cpu.errors import EndlessLoopError
from tilegym_cutile_cpu.lowering import Frame, Jump, JumpKind, Lowering, Step, control
from tilegym_cutile_cpu.values import compute_dtype, scalar

if TYPE_CHECKING:
    from collections.abc import Sequence


@control(Continue)
def continue_(op: Continue, lowering: Lowering) -> Step:
    return _jump(JumpKind.CONTINUE, lowering.slots(op.values))


@control(Break)
def break_(op: Break, lowering: Lowering) -> Step:
    return _jump(JumpKind.BREAK, lowering.slots(op.values))


@control(EndBranch)
def end_branch(op: EndBranch, lowering: Lowering) -> Step:
    return _jump(JumpKind.END, lowering.slots(op.outputs))


@control(Return)
def return_(_op: Return, _lowering: Lowering) -> Step:
    return _jump(JumpKind.RETURN, [])


def _jump(kind: JumpKind, slots: Sequence[int]) -> Step:
    def jump(frame: Frame) -> Jump:
        return Jump(kind, [frame.values[slot] for slot in slots])

    return jump


def _assign(values: list[Any], slots: Sequence[int], new: Sequence[Any]) -> None:
    for slot, value in zip(slots, new, strict=True):
        values[slot] = value


@control(IfElse)
def if_else(op: IfElse, lowering: Lowering) -> Step:
    condition, results = lowering.slot(op.cond), lowering.slots(op.result_vars)
    then, otherwise = lowering.region(op.then_block), lowering.region(op.else_block)

    def run(frame: Frame) -> Jump | None:
        jump = (then if frame.values[condition] else otherwise)(frame)
        if jump.kind is not JumpKind.END:
            return jump
        _assign(frame.values, results, jump.values)
        return None

    return run


@control(Loop)
def loop(op: Loop, lowering: Lowering) -> Step:
    return _for_loop(op, lowering) if op.is_for_loop else _while_loop(op, lowering)


def _for_loop(op: Loop, lowering: Lowering) -> Step:
    body, body_slots = lowering.region(op.body), lowering.slots(op.body_vars)
    initial, results = lowering.slots(op.initial_values), lowering.slots(op.result_vars)
    start, stop, step = lowering.slots((op.start, op.stop, op.step))
    induction, dtype = lowering.slot(op.induction_var), compute_dtype(op.induction_var.get_type().dtype)

    def run(frame: Frame) -> Jump | None:
        values = frame.values
        carried: Sequence[Any] = [values[slot] for slot in initial]
        for number in range(int(values[start]), int(values[stop]), int(values[step])):
            values[induction] = scalar(number, dtype)
            _assign(values, body_slots, carried)
            jump = body(frame)
            if jump.kind is JumpKind.RETURN:
                return jump
            carried = jump.values
            if jump.kind is JumpKind.BREAK:
                break
        _assign(values, results, carried)
        return None

    return run


def _while_loop(op: Loop, lowering: Lowering) -> Step:
    body, body_slots = lowering.region(op.body), lowering.slots(op.body_vars)
    initial, results = lowering.slots(op.initial_values), lowering.slots(op.result_vars)
    site = lowering.site(op.loc)

    def run(frame: Frame) -> Jump | None:
        values, memory = frame.values, frame.memory
        carried: Sequence[Any] = [values[slot] for slot in initial]
        while True:
            changes = memory.changes
            _assign(values, body_slots, carried)
            jump = body(frame)
            if jump.kind is JumpKind.RETURN:
                return jump
            if jump.kind is JumpKind.BREAK:
                _assign(values, results, jump.values)
                return None
            if memory.changes == changes and all(map(_same, carried, jump.values)):
                raise EndlessLoopError(site.at(frame.block), _ENDLESS)
            carried = jump.values

    return run


_ENDLESS = (
    "this loop never ends: a turn of it changed neither a variable nor memory. Blocks run one after another on the CPU,"
    " so a block cannot wait for a later one"
)


def _same(before: Any, after: Any) -> bool:
    return before is after or (isinstance(before, Tensor) and isinstance(after, Tensor) and torch.equal(before, after))
