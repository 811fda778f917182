"""A run: each result is checked against float64 first, and a wrong one gets no timing.

The check is that of the tests: the contract's own reference and error bound, on the whole result. In float64 it takes
some ten times the memory of the case. A peer is held to the bound of the norm alone: it may round in between, as users'
own code does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.benchmarking.ceilings import ceiling_of, unit_of
from tilegym.benchmarking.results import Row
from tilegym.benchmarking.timing import rotation, time_calls
from tilegym.errors import BenchmarkError, NoImplementationError, WrongAnswerError
from tilegym.testing import measure
from tilegym.testing.accuracy import by_name
from tilegym.testing.gradients import differentiable_outputs, measure_gradients
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Ceilings, Direction
    from tilegym.benchmarking.timing import Timing
    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.testing import Accuracy

WRONG: Final = "wrong: "
FAILED: Final = "failed: "
"""How the errors begin that tell of a broken backend; one that refuses a case, or is too slow for it, is not broken."""
_SLOW: Final = "too slow: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a run is made."""

    device: torch.device
    graph: bool = False
    """Replay calls from a CUDA graph."""
    seconds: float = 0.2
    """About how long each timing takes."""
    call_seconds: float = 5.0
    """A call that takes longer is not timed, nor are larger cases of its op and backend."""
    total_seconds: float | None = None
    """What has not begun by then is not run."""

    def __post_init__(self) -> None:
        """Refuse what no device can do."""
        if self.device.type not in ("cpu", "cuda"):
            raise BenchmarkError(f"benchmarks run on a CPU or a CUDA device, not on {self.device}")
        if self.graph and self.device.type != "cuda":
            raise BenchmarkError(f"CUDA graphs (--graph) are for CUDA devices; this run is on {self.device}")


def run(planned: Plan, ceilings: Ceilings, options: Options) -> Iterator[Row]:
    """A row for each case, direction and backend, as soon as it is known."""
    started = time.monotonic()
    too_slow: dict[tuple[str, str, str, Direction], str] = {}
    sets: list[dict[str, Any]] = []
    of_case: Case | None = None
    for case, direction, backends in planned.entries:
        if case is not of_case:
            sets.clear()  # first, so that two cases need never be held at once
            sets, of_case = rotation(case.arguments(options.device), case.forward.bytes, options.device), case
        for backend in backends:
            key = (case.op.name, case.dtype_name, backend, direction)
            outcome: Timing | str
            if options.total_seconds is not None and time.monotonic() - started > options.total_seconds:
                outcome = f"not run: the {options.total_seconds:g} s of this run were over"
            elif key in too_slow:
                outcome = f"not run: {too_slow[key]}"
            else:
                outcome = measured(case, direction, backend, sets, options)
                if isinstance(outcome, str) and outcome.startswith(_SLOW):
                    too_slow[key] = f"at {case.sample.name} {outcome}"
            yield _row(case, direction, backend, outcome, ceilings, options)


def measured(
    case: Case, direction: Direction, backend: str, sets: list[dict[str, Any]], options: Options
) -> Timing | str:
    """The timing, or why there is none; whatever is wrong with one backend, nothing is raised.

    Args:
        case: what is called.
        direction: what of it is timed.
        backend: its name.
        sets: arguments, which calls take in turn; the first are those of the case, whose result is checked.
        options: how to time.
    """
    try:
        calls = calls_of(case, direction, backend, sets)
        took = _seconds_of(calls[-1], options.device)
        if took > options.call_seconds:
            return f"{_SLOW}one call took {took:.1f} s, and may take {options.call_seconds:g} s"
        seconds = max(options.seconds, 2.5 * took)  # three calls at the least, for a median and a spread
        return time_calls(calls, options.device, seconds=seconds, graph=options.graph)
    except WrongAnswerError as error:
        return f"{WRONG}{error}"
    except NoImplementationError as error:
        return f"refused: {describe(error)}"
    except torch.OutOfMemoryError:
        return f"not run: {options.device} has too little memory for it and its reference in float64"
    except BenchmarkError:  # holds for every row
        raise
    except Exception as error:  # noqa: BLE001 - whatever one backend raises, the others are timed
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
    try:
        found = measure(contract, sets[0], result)
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
            found = dict(zip(leaves, call(), strict=True))
            accuracies = measure_gradients(case.contract, gradient, arguments, grads, found)
            _check({f"gradient of {name}": accuracy for name, accuracy in accuracies.items()}, backend)
        calls.append(call)
    return calls


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
        graph=options.graph,
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
