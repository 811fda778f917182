"""The search behind `tilegym tune`: other configurations than those that the heuristics of an op choose.

An op is run as `tilegym bench` runs it: in memory of the search's own, each result checked against float64 before it is
timed, with cold caches. Which tuned functions that asks, and with which arguments, is observed. Then each question is
answered by every configuration of its search space, all else left as it is, a few at a time in turn with the
heuristic's own: what counts is the ratio to that, as a GPU's clocks change from minute to minute. What does not
compile, is wrong, or is far slower than the heuristic's own is left out, with the reason.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct
import torch

from tilegym.benchmarking.checked import calls_of
from tilegym.benchmarking.suite import HeldArguments, measured
from tilegym.benchmarking.timing import captured, current
from tilegym_cutile import tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.checked import Calls
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Direction
    from tilegym.benchmarking.suite import Measured, Options
    from tilegym.benchmarking.timing import Around
    from tilegym_cutile.tuning import Question

NOISE: Final = 0.01
"""A configuration must be better by more than this share, twice."""

_TOGETHER: Final = 7
"""Configurations timed in turn with the heuristic's own: each holds memory meanwhile."""

_DECISIVE: Final = 4
"""How many times longer the second timing takes."""

_TOO_SLOW: Final = 5
"""Times the heuristic's own: such a configuration is called once, and not timed."""
_LEAST_SECONDS: Final = 0.05
"""A call that takes no longer is timed all the same: so much may be the host's delay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much is tried."""

    configs: int | None = None
    """Of each search space; None: all."""
    compile_seconds: float = 20.0
    """A configuration whose kernel takes longer to compile is left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A call that failed as it is, so that nothing was tried."""

    case: Case
    direction: Direction
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What came out for one question."""

    case: Case
    direction: Direction
    question: Question
    tried: int
    """How many configurations, besides the heuristic's own."""
    plain_ms: float
    """Of a call with the heuristic's own; inf: it failed."""
    best: Any
    """The configuration to answer with: the heuristic's own, unless another is better."""
    best_ms: float
    ratios: Mapping[Any, float]
    """Configuration → its time by that of the heuristic's own, as first timed."""
    failures: Mapping[Any, str]
    """Configuration → why it has no timing."""

    @property
    def better(self) -> bool:
        """Whether it is another than the heuristic's own."""
        return bool(self.best != self.question.plain)


def search(
    planned: Plan,
    options: Options,
    limits: Limits,
    *,
    why_not: Callable[[Question, Any], str | None] = lambda *_: None,
    tried: Callable[[Question, int, int], None] = lambda *_: None,
) -> Iterator[Found | Failed]:
    """Tune what the calls of a plan ask, each question once; a result as soon as it is known.

    Args:
        planned: cases, each on one backend whose kernels are cuTile's.
        options: how each configuration is timed; the best of them and the heuristic's own, once more and for longer.
        limits: how much is tried.
        why_not: from `ahead.compiling_ahead`: why a configuration is not worth launching.
        tried: told as the search goes on: the question, how many configurations were tried, and of how many.
    """
    answered: set[Question] = set()
    held = HeldArguments(options.device)
    for case, direction, (backend, *_) in planned.entries:
        sets = held.of(case)
        if isinstance(sets, str):
            yield Failed(case=case, direction=direction, reason=sets)
            continue
        call = _Call(
            make=partial(calls_of, case, direction, backend, sets),
            options=options,
            graph=options.replays(case),
            compile_seconds=limits.compile_seconds,
        )
        outcome = call.measured(nullcontext, [backend], options)[backend]
        if isinstance(outcome, str):
            yield Failed(case=case, direction=direction, reason=outcome)
            continue
        slow = max(_LEAST_SECONDS, _TOO_SLOW * outcome.timing.median / 1000)
        patient = replace(call, options=replace(options, call_seconds=slow))
        for question in call.asked():
            if question not in answered:
                answered.add(question)
                trial = _Trial(call=patient, question=question)
                trial.run(question.space[: limits.configs], why_not, tried)
                yield trial.found(case, direction)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """A call of the plan, and how it is timed."""

    make: Callable[[], Calls]
    options: Options
    graph: bool
    compile_seconds: float

    def measured(self, around: Around, names: Sequence[Any], options: Options) -> dict[Any, Measured | str]:
        """What came out by each name, inside `around(name)`."""
        with ct.compiler_timeout(self.compile_seconds):
            return measured(dict.fromkeys(names, self.make), options, graph=self.graph, around=around)

    def asked(self) -> list[Question]:
        """What it asks tuned functions, as it is timed; of a backward's, nothing that its forward asked."""
        device = self.options.device
        with current(device, graph=self.graph):
            call = self.make().calls[0]
            with tuning.observed() as questions:
                if self.graph:
                    captured(call, device)
                else:
                    call()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return [*questions]


@dataclass(kw_only=True, slots=True)
class _Trial:
    """Configurations that answer one question of a call."""

    call: _Call
    question: Question
    tried: int = 0
    plain_ms: float = math.inf
    times: dict[Any, tuple[float, float]] = field(default_factory=dict)
    """Configuration → its time by that of the heuristic's own in the same rounds, 0 if that failed; and the time."""
    failures: dict[Any, str] = field(default_factory=dict)

    def run(
        self,
        candidates: Sequence[Any],
        why_not: Callable[[Question, Any], str | None],
        tried: Callable[[Question, int, int], None],
    ) -> None:
        """Time all of them, a few at a time beside the heuristic's own."""
        for start in range(0, len(candidates) or 1, _TOGETHER):
            together = candidates[start : start + _TOGETHER]
            self.failures |= {one: reason for one in together if (reason := why_not(self.question, one)) is not None}
            found = self._timed([one for one in together if one not in self.failures], self.call.options)
            self.times |= {one: (ms / self.plain_ms, ms) for one, ms in found.items()}
            self.tried += len(together)
            tried(self.question, self.tried, len(candidates))

    def found(self, case: Case, direction: Direction) -> Found:
        """What came out. Of many, the best may have been lucky: it has to win again, for longer."""
        plain = self.question.plain
        best = min(self.times, key=self.times.__getitem__, default=plain)
        best_ms = math.inf
        if best in self.times and self.times[best][0] < 1 - NOISE:
            options = self.call.options
            best_ms = self._timed([best], replace(options, seconds=_DECISIVE * options.seconds)).get(best, math.inf)
        better = best_ms < (1 - NOISE) * self.plain_ms
        return Found(
            case=case,
            direction=direction,
            question=self.question,
            tried=self.tried,
            plain_ms=self.plain_ms,
            best=best if better else plain,
            best_ms=best_ms if better else self.plain_ms,
            ratios={config: ratio for config, (ratio, _) in self.times.items()},
            failures=self.failures,
        )

    def _timed(self, configs: Sequence[Any], options: Options) -> dict[Any, float]:
        """Milliseconds with each that gives any, and anew with the heuristic's own."""
        plain = self.question.plain
        outcomes = self.call.measured(partial(tuning.forced, self.question), [plain, *configs], options)
        self.failures |= {config: reason for config, reason in outcomes.items() if isinstance(reason, str)}
        times = {config: one.timing.median for config, one in outcomes.items() if not isinstance(one, str)}
        self.plain_ms = times.pop(plain, math.inf)
        return times
