"""A run: each result is checked against float64 first (`checked.py`), and a wrong one gets no timing.

The backends of a case are timed together, in rounds, so that the ratio of two times is not one of two clocks of a GPU.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch

from tilegym import registry
from tilegym.benchmarking.ceilings import ceiling_of, unit_of
from tilegym.benchmarking.checked import calls_of
from tilegym.benchmarking.results import Row
from tilegym.benchmarking.timing import attempt, current, rotation, time_in_turns
from tilegym.errors import BenchmarkError, NoImplementationError, WrongAnswerError
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.checked import Calls
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Ceilings, Direction
    from tilegym.benchmarking.timing import Around, Timing

K = TypeVar("K", bound="Hashable")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What came out for one backend whose result is right."""

    timing: Timing
    norm_error: float
    """See `Row`."""


def run(planned: Plan, ceilings: Ceilings, options: Options) -> Iterator[Row]:
    """A row for each case, direction and backend, as soon as those of the case are known."""
    started = time.monotonic()
    too_slow: dict[tuple[str, str, str, Direction], str] = {}
    held = HeldArguments(options.device)
    for case, direction, backends in planned.entries:
        keys = {backend: (case.op.name, case.dtype_name, backend, direction) for backend in backends}
        outcomes: dict[str, Measured | str] = {
            backend: f"not run: {too_slow[key]}" for backend, key in keys.items() if key in too_slow
        }
        if options.total_seconds is not None and time.monotonic() - started > options.total_seconds:
            outcomes = dict.fromkeys(backends, f"not run: the {options.total_seconds:g} s of this run were over")
        wanted = [backend for backend in backends if backend not in outcomes]
        sets = held.of(case) if wanted else []
        if isinstance(sets, str):
            outcomes |= dict.fromkeys(wanted, sets)
        else:
            makers = {backend: partial(calls_of, case, direction, backend, sets) for backend in wanted}
            outcomes |= measured(makers, options, graph=options.replays(case))
        for backend in backends:
            outcome = outcomes[backend]
            if isinstance(outcome, str) and outcome.startswith(_SLOW):
                too_slow[keys[backend]] = f"at {case.sample.name} {outcome}"
            yield _row(case, direction, backend, outcome, ceilings, options)


class HeldArguments:
    """The arguments of one case at a time, kept until those of another are asked for."""

    def __init__(self, device: torch.device) -> None:
        """None yet."""
        self._device = device
        self._case: Case | None = None
        self._found: list[dict[str, Any]] | str = []

    def of(self, case: Case) -> list[dict[str, Any]] | str:
        """Those of a case, and copies of them to time calls on; or why they cannot be made."""
        if case is not self._case:
            if isinstance(self._found, list):
                self._found.clear()  # first, so that two cases need never be held at once
            made = attempt(lambda: rotation(case.arguments(self._device), case.forward.bytes, self._device))
            if isinstance(made, torch.OutOfMemoryError):
                self._found = f"not run: {self._device} has too little memory for its arguments"
            else:
                self._found = f"not run: {describe(made)}" if isinstance(made, Exception) else made
            self._case = case
        return self._found


def measured(
    makers: Mapping[K, Callable[[], Calls]], options: Options, *, graph: bool = False, around: Around = nullcontext
) -> dict[K, Measured | str]:
    """The timing of each way to do one thing, or why there is none; whatever is wrong with one, nothing is raised.

    Args:
        makers: by name, what makes its calls and checks a result, as `calls_of` does.
        options: how to time.
        graph: whether calls are replayed from a CUDA graph.
        around: by name, what its calls are made inside of.
    """
    outcomes: dict[K, Measured | str] = {}
    made: dict[K, Calls] = {}
    with current(options.device, graph=graph):
        for name, make in makers.items():
            with around(name):
                calls = attempt(partial(_patient_calls, make, options))
            if isinstance(calls, Exception):
                outcomes[name] = _reason(calls, options.device)
            else:
                made[name] = calls
        groups = {name: of.calls for name, of in made.items()}
        timings = time_in_turns(groups, options.device, seconds=options.seconds, graph=graph, around=around)
    for name, timing in timings.items():
        if isinstance(timing, Exception):
            outcomes[name] = _reason(timing, options.device)
        else:
            outcomes[name] = Measured(timing=timing, norm_error=made[name].norm_error)
    return outcomes


def _patient_calls(make: Callable[[], Calls], options: Options) -> Calls:
    """The calls to time.

    Raises:
        _TooSlowError: one takes longer than a call may.
    """
    calls = make()
    took = _seconds_of(calls.calls[-1], options.device)
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


def _row(
    case: Case, direction: Direction, backend: str, outcome: Measured | str, ceilings: Ceilings, options: Options
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
    timing = outcome.timing
    rate = (work.bytes * 1e-6 if unit == "GB/s" else work.flops * 1e-9) / timing.median
    return replace(
        row,
        median_ms=timing.median,
        low_ms=timing.low,
        high_ms=timing.high,
        norm_error=outcome.norm_error,
        rate=rate,
        ceiling_percent=100 * rate / ceiling_of(ceilings, case.dtype_name, unit),
    )
