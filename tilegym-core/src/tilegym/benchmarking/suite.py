"""A run: each result is checked against float64 first, and a wrong one gets no timing.

The check is that of the tests: the contract's own reference and error bound, on the whole result or, of a large call,
on a part (`parts.py`). A peer is held to the bound of the norm alone: it may round in between, as users' own code does.

The backends of a case are timed together, in rounds, so that the ratio of two times is not one of two clocks of a GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.benchmarking.ceilings import ceiling_of, unit_of
from tilegym.benchmarking.parts import part_to_check
from tilegym.benchmarking.results import Row
from tilegym.benchmarking.timing import attempt, current, rotation, time_in_turns
from tilegym.errors import BenchmarkError, NoImplementationError, WrongAnswerError
from tilegym.sharding import OUTPUT
from tilegym.testing import measure
from tilegym.testing.accuracy import by_name, tensors_of
from tilegym.testing.gradients import differentiable_outputs, measure_gradients
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Ceilings, Direction
    from tilegym.benchmarking.timing import Timing
    from tilegym.contract import Contract, Gradient
    from tilegym.op import Op
    from tilegym.testing import Accuracy

WRONG: Final = "wrong: "
FAILED: Final = "failed: "
"""How the errors begin that tell of a broken backend; one that refuses a case, or is too slow for it, is not broken."""
_SLOW: Final = "too slow: "


class _TooSlowError(Exception):
    """A call takes longer than a call may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a run is made."""

    device: torch.device
    graph: bool | None = None
    """Replay calls from a CUDA graph; None: those of cases that ask for it."""
    seconds: float = 0.2
    """About how long each timing takes."""
    call_seconds: float = 5.0
    """A call that takes longer is not timed, nor are larger cases of its op and backend."""
    total_seconds: float | None = None
    """What has not begun by then is not run."""

    def replays(self, case: Case) -> bool:
        """Whether calls of a case are replayed from a CUDA graph."""
        return self.device.type == "cuda" and (case.graph if self.graph is None else self.graph)

    def __post_init__(self) -> None:
        """Refuse what no device can do."""
        if self.device.type not in ("cpu", "cuda"):
            raise BenchmarkError(f"benchmarks run on a CPU or a CUDA device, not on {self.device}")
        if self.graph and self.device.type != "cuda":
            raise BenchmarkError(f"CUDA graphs (--graph) are for CUDA devices; this run is on {self.device}")


def run(planned: Plan, ceilings: Ceilings, options: Options) -> Iterator[Row]:
    """A row for each case, direction and backend, as soon as those of the case are known."""
    started = time.monotonic()
    too_slow: dict[tuple[str, str, str, Direction], str] = {}
    sets: list[dict[str, Any]] = []
    of_case: Case | None = None
    for case, direction, backends in planned.entries:
        keys = {backend: (case.op.name, case.dtype_name, backend, direction) for backend in backends}
        outcomes: dict[str, Timing | str] = {
            backend: f"not run: {too_slow[key]}" for backend, key in keys.items() if key in too_slow
        }
        if options.total_seconds is not None and time.monotonic() - started > options.total_seconds:
            outcomes = dict.fromkeys(backends, f"not run: the {options.total_seconds:g} s of this run were over")
        wanted = [backend for backend in backends if backend not in outcomes]
        if wanted and case is not of_case:
            sets.clear()  # first, so that two cases need never be held at once
            sets, of_case = rotation(case.arguments(options.device), case.forward.bytes, options.device), case
        outcomes |= measured(case, direction, wanted, sets, options)
        for backend in backends:
            outcome = outcomes[backend]
            if isinstance(outcome, str) and outcome.startswith(_SLOW):
                too_slow[keys[backend]] = f"at {case.sample.name} {outcome}"
            yield _row(case, direction, backend, outcome, ceilings, options)


def measured(
    case: Case, direction: Direction, backends: Sequence[str], sets: list[dict[str, Any]], options: Options
) -> dict[str, Timing | str]:
    """The timing on each backend, or why there is none; whatever is wrong with one of them, nothing is raised.

    Args:
        case: what is called.
        direction: what of it is timed.
        backends: their names.
        sets: arguments, which calls take in turn; the first are those of the case, whose result is checked.
        options: how to time.
    """
    outcomes: dict[str, Timing | str] = {}
    calls: dict[str, Sequence[Callable[[], Any]]] = {}
    graph = options.replays(case)
    with current(options.device, graph=graph):
        for backend in backends:
            made = attempt(partial(_patient_calls, case, direction, backend, sets, options))
            if isinstance(made, Exception):
                outcomes[backend] = _reason(made, options.device)
            else:
                calls[backend] = made
        timings = time_in_turns(calls, options.device, seconds=options.seconds, graph=graph)
    return outcomes | {
        backend: _reason(found, options.device) if isinstance(found, Exception) else found
        for backend, found in timings.items()
    }


def _patient_calls(
    case: Case, direction: Direction, backend: str, sets: Sequence[dict[str, Any]], options: Options
) -> Sequence[Callable[[], Any]]:
    """The calls to time.

    Raises:
        _TooSlowError: one takes longer than a call may.
    """
    calls = calls_of(case, direction, backend, sets)
    took = _seconds_of(calls[-1], options.device)
    if took > options.call_seconds:
        raise _TooSlowError(f"one call took {took:.1f} s, and may take {options.call_seconds:g} s")
    return calls


def _reason(error: Exception, device: torch.device) -> str:
    """What an error says of a backend."""
    if isinstance(error, WrongAnswerError):
        return f"{WRONG}{error}"
    if isinstance(error, NoImplementationError):
        return f"refused: {describe(error)}"
    if isinstance(error, torch.OutOfMemoryError):
        return f"not run: {device} has too little memory for it and its reference in float64"
    if isinstance(error, _TooSlowError):
        return f"{_SLOW}{error}"
    return f"{FAILED}{describe(error)}"


def _seconds_of(call: Callable[[], Any], device: torch.device) -> float:
    """Wall time of a call after the first, which compiles."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def calls_of(
    case: Case, direction: Direction, backend: str, sets: Sequence[dict[str, Any]]
) -> Sequence[Callable[[], Any]]:
    """A call of one direction alone for each set of arguments, after what the first gives was checked.

    Raises:
        WrongAnswerError: it is wrong; the message has the errors beside their bounds.
    """
    if direction == "forward":
        return checked_calls(case.op, case.contract, backend, sets)
    return _backward(case, backend, sets)


def checked_calls(
    op: Op, contract: Contract, backend: str, sets: Sequence[dict[str, Any]]
) -> Sequence[Callable[[], Any]]:
    """A call for each set of arguments, after the result of the first was checked.

    Raises:
        WrongAnswerError: it is wrong; the message has the errors beside their bounds.
    """
    calls = [partial(op.function, **arguments, backend=backend) for arguments in sets]
    result = calls[0]()
    part = part_to_check(op, contract, sets[0])
    outputs = tensors_of(result)
    if len(outputs) == len(contract.outputs):  # else they are those of a list, which no way to split is for
        outputs = [part.of(one, name, OUTPUT) for name, one in zip(contract.outputs, outputs, strict=True)]
    try:
        found = measure(contract, dict(part.arguments), outputs)
    except AssertionError as error:  # it has another shape
        raise WrongAnswerError(str(error)) from None
    _check(by_name(contract, found), backend)
    return calls


def _backward(case: Case, backend: str, sets: Sequence[dict[str, Any]]) -> Sequence[Callable[[], Any]]:
    """A call of the backward alone for each set of arguments, after the gradients of the first were checked."""
    gradient = case.contract.gradient
    assert gradient is not None, "the plan has backward entries for ops with a gradient alone"  # noqa: S101
    calls: list[Callable[[], Any]] = []
    for arguments in sets:
        leaves = {  # of the first set, which is checked, a copy: some peers write their gradients over their inputs
            name: (arguments[name].detach() if calls else arguments[name].detach().clone()).requires_grad_()
            for name in gradient.inputs
            if isinstance(arguments.get(name), torch.Tensor)
        }
        result = case.op.function(**(arguments | leaves), backend=backend)
        outputs = differentiable_outputs(case.contract, result)
        generator = torch.Generator(outputs[0].device).manual_seed(1)
        grads = tuple(
            torch.randn(one.shape, dtype=one.dtype, device=one.device, generator=generator) for one in outputs
        )
        call = partial(torch.autograd.grad, outputs, [*leaves.values()], grads, retain_graph=True)
        if not calls:
            _check_gradients(case, gradient, backend, arguments, outputs, leaves, grads)
        calls.append(call)
    return calls


def _check_gradients(
    case: Case,
    gradient: Gradient,
    backend: str,
    arguments: dict[str, Any],
    outputs: tuple[Tensor, ...],
    leaves: dict[str, Tensor],
    grads: tuple[Tensor, ...],
) -> None:
    """Check the gradients of a part, from gradients of the outputs that are 0 elsewhere, since parts share inputs."""
    part = part_to_check(case.op, case.contract, arguments)
    names = gradient.outputs or case.contract.outputs
    wholes = grads
    if part.cuts:
        wholes = tuple(map(torch.zeros_like, grads))
        for name, whole, grad in zip(names, wholes, grads, strict=True):
            part.of(whole, name, OUTPUT).copy_(part.of(grad, name, OUTPUT))
    found = torch.autograd.grad(outputs, [*leaves.values()], wholes, retain_graph=True)
    accuracies = measure_gradients(
        case.contract,
        gradient,
        dict(part.arguments),
        tuple(part.of(grad, name, OUTPUT) for name, grad in zip(names, grads, strict=True)),
        {name: part.of(one, name) for name, one in zip(leaves, found, strict=True)},
    )
    _check({f"gradient of {name}": accuracy for name, accuracy in accuracies.items()}, backend)


def _check(accuracies: Mapping[str, Accuracy], backend: str) -> None:
    """Raise WrongAnswerError unless all are within the bounds that the backend is held to."""
    peer = registry.backends()[backend].peer
    for name, accuracy in accuracies.items():
        if not (accuracy.norm_error <= accuracy.norm_bound if peer else accuracy.ok):
            raise WrongAnswerError(f"{name}: {accuracy}")


def _row(
    case: Case, direction: Direction, backend: str, outcome: Timing | str, ceilings: Ceilings, options: Options
) -> Row:
    work = case.forward if direction == "forward" else case.backward
    assert work is not None, "the plan has backward entries for ops with a gradient alone"  # noqa: S101
    intensity = work.flops / work.bytes if work.bytes else 0.0
    unit = unit_of(ceilings, case.dtype_name, intensity)
    row = Row(
        op=case.op.name,
        case=case.sample.name,
        dtype=case.dtype_name,
        direction=direction,
        backend=backend,
        peer=registry.backends()[backend].peer,
        size=work.bytes,
        median_ms=None,
        low_ms=None,
        high_ms=None,
        bytes=work.bytes,
        flops=work.flops,
        rate=None,
        unit=unit,
        ceiling_percent=None,
        intensity=intensity,
        error=None,
        graph=options.replays(case),
    )
    if isinstance(outcome, str):
        return replace(row, error=outcome)
    rate = (work.bytes * 1e-6 if unit == "GB/s" else work.flops * 1e-9) / outcome.median
    return replace(
        row,
        median_ms=outcome.median,
        low_ms=outcome.low,
        high_ms=outcome.high,
        rate=rate,
        ceiling_percent=100 * rate / ceiling_of(ceilings, case.dtype_name, unit),
    )
