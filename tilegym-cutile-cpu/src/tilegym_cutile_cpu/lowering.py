"""From the compiler's final IR to a program that runs: one Python closure for each operation.

A kernel is lowered once for each signature. Variables become numbered slots of a list, constants are computed there and
then, and each operation becomes a *step*: a function of a frame that reads slots, computes, and writes slots. What an
operation does is said by its handler, in `tilegym_cutile_cpu.handlers`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cuda.tile._ir.type import TokenTy

from tilegym_cutile_cpu.errors import BlockId, EmulationError, KernelError, Site, UnsupportedOperationError

if TYPE_CHECKING:
    from cuda.tile._exception import Loc
    from cuda.tile._ir.ir import Block, Operation, Var

    from tilegym_cutile_cpu.memory import Memory


class JumpKind(enum.Enum):
    """How control leaves a region: past its end, to the next or out of the loop, or out of the kernel."""

    END = enum.auto()
    CONTINUE = enum.auto()
    BREAK = enum.auto()
    RETURN = enum.auto()


@dataclass(slots=True)
class Jump:
    kind: JumpKind
    values: Sequence[Any]


@dataclass(slots=True)
class Frame:
    """One block at work: its variables, its place in the grid, and the memory it shares with the others."""

    values: list[Any]
    block: BlockId
    grid: tuple[int, int, int]
    memory: Memory


_PAST_THE_END = Jump(JumpKind.END, ())

Step = Callable[[Frame], "Jump | None"]
Compute = Callable[..., Any]
PureHandler = Callable[[Any], Compute]
EffectHandler = Callable[[Any, "Lowering"], Compute]
ControlHandler = Callable[[Any, "Lowering"], Step]

PURE: dict[type[Operation], PureHandler] = {}
EFFECT: dict[type[Operation], EffectHandler] = {}
CONTROL: dict[type[Operation], ControlHandler] = {}
ERASED: set[type[Operation]] = set()

# Tokens order memory operations; here they run in program order anyway.
_TOKEN_OPERANDS = ("token", "tokens")


def pure(*operations: type[Operation]) -> Callable[[PureHandler], PureHandler]:
    """Register `handler(op)`, which returns a function of the operands' values that depends on nothing else."""

    def register(handler: PureHandler) -> PureHandler:
        PURE.update(dict.fromkeys(operations, handler))
        return handler

    return register


def plain(*operations: type[Operation]) -> Callable[[Compute], Compute]:
    """Register a function of the operands' values itself, for operations that have nothing else to say."""

    def register(function: Compute) -> Compute:
        PURE.update(dict.fromkeys(operations, lambda op: function))  # noqa: ARG005 - handlers take the operation
        return function

    return register


def effect(*operations: type[Operation]) -> Callable[[EffectHandler], EffectHandler]:
    """Register `handler(op, lowering)`, which returns a function of the frame and the operands' values."""

    def register(handler: EffectHandler) -> EffectHandler:
        EFFECT.update(dict.fromkeys(operations, handler))
        return handler

    return register


def control(*operations: type[Operation]) -> Callable[[ControlHandler], ControlHandler]:
    """Register `handler(op, lowering)`, which returns a step."""

    def register(handler: ControlHandler) -> ControlHandler:
        CONTROL.update(dict.fromkeys(operations, handler))
        return handler

    return register


@dataclass(slots=True)
class Region:
    """A lowered block of operations."""

    steps: list[tuple[Step, Operation]]
    kernel_name: str

    def __call__(self, frame: Frame) -> Jump:
        for step, operation in self.steps:
            try:
                jump = step(frame)
            except EmulationError:
                raise
            except Exception as error:
                site = Site.of(self.kernel_name, operation.loc, frame.block)
                raise KernelError(site, f"{operation.op} failed: {type(error).__name__}: {error}") from error
            if jump is not None:
                return jump
        return _PAST_THE_END


@dataclass(frozen=True)
class Program:
    """A lowered kernel.

    parameters: the slots of the flattened arguments.
    initial: the slots as every block finds them, constants filled in.
    prologue: the steps whose results are the same in every block; they run once for each launch.
    body: the steps of a block.
    """

    kernel_name: str
    parameters: tuple[int, ...]
    initial: list[Any]
    prologue: Region
    body: Region


def lower(kernel_name: str, block: Block) -> Program:
    """Lower the final IR of a kernel."""
    lowering = Lowering(kernel_name)
    parameters = tuple(lowering.slot(var) for var in block.params)
    body = lowering.region(block)
    prologue, rest = _split_uniform(body, {*parameters, *lowering.constant_slots}, lowering)
    return Program(kernel_name, parameters, lowering.initial_values(), prologue, rest)


def _split_uniform(body: Region, uniform: set[int], lowering: Lowering) -> tuple[Region, Region]:
    """Part the top level of a kernel into what no block index reaches, and the rest."""
    once, rest = [], []
    for step, operation in body.steps:
        inputs = {lowering.slot(var) for var in operation.all_inputs()}
        if type(operation) in PURE and inputs <= uniform:
            uniform.update(lowering.slot(var) for var in operation.result_vars)
            once.append((step, operation))
        else:
            rest.append((step, operation))
    return Region(once, body.kernel_name), Region(rest, body.kernel_name)


class Lowering:
    """What handlers may ask while a kernel is being lowered."""

    def __init__(self, kernel_name: str) -> None:
        self.kernel_name = kernel_name
        self.constant_slots: set[int] = set()
        self._slots: dict[str, int] = {}
        self._constants: dict[int, Any] = {}

    def slot(self, var: Var[Any]) -> int:
        return self._slots.setdefault(var.name, len(self._slots))

    def slots(self, variables: Iterable[Var[Any] | None]) -> list[int]:
        return [self.slot(var) for var in variables if var is not None]

    def site(self, loc: Loc) -> Site:
        return Site.of(self.kernel_name, loc)

    def set_constant(self, var: Var[Any], value: Any) -> None:
        self._constants[self.slot(var)] = value
        self.constant_slots.add(self.slot(var))

    def initial_values(self) -> list[Any]:
        return [self._constants.get(slot) for slot in range(len(self._slots))]

    def extend(self, values: list[Any]) -> None:
        """Add the slots that are new since `values` was made or last extended."""
        values.extend(self._constants.get(slot) for slot in range(len(values), len(self._slots)))

    def region(self, block: Block) -> Region:
        return self.operations(block.operations)

    def operations(self, operations: Iterable[Operation]) -> Region:
        lowered = [(step, op) for op in operations if (step := self._lower(op)) is not None]
        return Region(lowered, self.kernel_name)

    def _lower(self, op: Operation) -> Step | None:
        try:
            return self._step(op)
        except UnsupportedOperationError:
            raise  # of an operation nested in this one, which it names
        except NotImplementedError as error:
            raise UnsupportedOperationError(f"{self.site(op.loc)}: {error} cannot run on the CPU") from error

    def _step(self, op: Operation) -> Step | None:
        kind = type(op)
        if kind in ERASED:
            return None
        if kind in CONTROL:
            return CONTROL[kind](op, self)
        if kind in PURE:
            return self._pure_step(op, PURE[kind](op))
        if kind in EFFECT:
            return self._effect_step(op, EFFECT[kind](op, self))
        raise NotImplementedError(f"operation '{op.op}'")

    def _operands(self, op: Operation) -> list[int | list[int] | None]:
        """The slots of the operands, in the order of their fields: a list for a tuple, None for what is absent."""
        found: list[int | list[int] | None] = []
        for name, value in op.operands.items():
            if name in _TOKEN_OPERANDS:
                continue
            found.append(self.slots(value) if isinstance(value, tuple) else None if value is None else self.slot(value))
        return found

    def _pure_step(self, op: Operation, function: Compute) -> Step | None:
        operands = self._operands(op)
        flat = [slot for slot in operands if isinstance(slot, int)]
        if len(flat) == len(operands) and all(slot in self.constant_slots for slot in flat):
            self._fold(op, function(*(self._constants[slot] for slot in flat)))
            return None
        fetch, results = _fetcher(operands), self._results(op)
        if len(results) != 1:
            return _many_results(lambda frame: function(*fetch(frame.values)), results)
        (result,) = results
        if len(flat) == len(operands) == 1:
            (only,) = flat

            def run_unary(frame: Frame) -> None:
                frame.values[result] = function(frame.values[only])

            return run_unary

        def run(frame: Frame) -> None:
            frame.values[result] = function(*fetch(frame.values))

        return run

    def _effect_step(self, op: Operation, function: Compute) -> Step:
        fetch, results = _fetcher(self._operands(op)), self._results(op)
        if len(results) != 1:
            return _many_results(lambda frame: function(frame, *fetch(frame.values)), results)
        (result,) = results

        def run(frame: Frame) -> None:
            frame.values[result] = function(frame, *fetch(frame.values))

        return run

    def _fold(self, op: Operation, result: Any) -> None:
        for var, value in zip(op.result_vars, (result,) if len(op.result_vars) == 1 else result, strict=True):
            self.set_constant(var, value)

    def _results(self, op: Operation) -> list[int]:
        """The slots of the results that carry a value: all but the tokens."""
        return [self.slot(var) for var in op.result_vars if not isinstance(var.try_get_type(), TokenTy)]


def _many_results(compute: Callable[[Frame], Sequence[Any] | None], results: list[int]) -> Step:
    def run(frame: Frame) -> None:
        for slot, value in zip(results, compute(frame) or (), strict=True):
            frame.values[slot] = value

    return run


def _fetcher(operands: list[int | list[int] | None]) -> Callable[[list[Any]], Sequence[Any]]:
    """A function that picks the operands out of the slots. Text, since it runs once for each operation and block."""
    picks = ", ".join(
        "None"
        if operand is None
        else f"values[{operand}]"
        if isinstance(operand, int)
        else f"[{', '.join(f'values[{slot}]' for slot in operand)}]"
        for operand in operands
    )
    function: Callable[[list[Any]], Sequence[Any]] = eval(f"lambda values: [{picks}]")  # noqa: S307 - of slot numbers
    return function
