"""The search behind `tilegym tune`: other configurations than those that the heuristics of an op choose.

An op is run as `tilegym bench` runs it: on cases of its contract, in memory of the search's own, each result checked
against float64 before it is timed, with cold caches. Which tuned functions that asks, and with which arguments, is
observed. Then each question is answered by every configuration of its search space in turn, all else left as it is.
What does not compile, is wrong, or is far slower than the heuristic's own is left out, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct
import torch

from tilegym.benchmarking.checked import calls_of
from tilegym.benchmarking.suite import measured
from tilegym.benchmarking.timing import rotation
from tilegym_cutile import tuning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Direction
    from tilegym.benchmarking.suite import Measured, Options
    from tilegym_cutile.ahead import Begin
    from tilegym_cutile.tuning import Question

    Run = Callable[[Options], Measured | str]
    """Checks and times a call: the timing, or why there is none."""

NOISE: Final = 0.01
"""A configuration must be better by more than this share, twice."""

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
    compile_ahead: Begin = lambda *_: lambda _: None,
    tried: Callable[[Question, int, int], None] = lambda *_: None,
) -> Iterator[Found | Failed]:
    """Tune what the calls of a plan ask, each question once; a result as soon as it is known.

    Args:
        planned: cases, each on one backend whose kernels are cuTile's.
        options: how each configuration is timed; the best of them and the heuristic's own, once more and for longer.
        limits: how much is tried.
        compile_ahead: from `ahead.compiling_ahead`; without it, a kernel is compiled when it is launched.
        tried: told after each configuration: the question, how many were tried, and of how many.
    """
    answered: set[Question] = set()
    sets: list[dict[str, Any]] = []
    of_case: Case | None = None
    for case, direction, (backend, *_) in planned.entries:
        if case is not of_case:
            sets.clear()  # first, so that two cases need never be held at once
            sets, of_case = rotation(case.arguments(options.device), case.forward.bytes, options.device), case
        run = partial(_alone, case, direction, backend, sets, limits.compile_seconds)
        outcome = run(options)
        if isinstance(outcome, str):
            yield Failed(case=case, direction=direction, reason=outcome)
            continue
        for question in _asked(calls_of(case, direction, backend, sets).calls[0], options.device):
            if question not in answered:
                answered.add(question)
                candidates = question.space[: limits.configs]
                why_not = compile_ahead(case, question, candidates)
                best, plain_ms, best_ms, failures = _best(run, question, candidates, options, why_not, tried)
                yield Found(
                    case=case,
                    direction=direction,
                    question=question,
                    tried=len(candidates),
                    plain_ms=plain_ms,
                    best=best,
                    best_ms=best_ms,
                    failures=failures,
                )


def _alone(
    case: Case, direction: Direction, backend: str, sets: list[dict[str, Any]], compile_seconds: float, options: Options
) -> Measured | str:
    with ct.compiler_timeout(compile_seconds):
        return measured(case, direction, [backend], sets, options)[backend]


def _asked(call: Callable[[], Any], device: torch.device) -> list[Question]:
    """What a call asks tuned functions; of a backward's, nothing that its forward asked."""
    with tuning.observed() as questions:
        call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return [*questions]


def _best(
    run: Run,
    question: Question,
    candidates: Sequence[Any],
    options: Options,
    why_not: Callable[[Any], str | None],
    tried: Callable[[Question, int, int], None],
) -> tuple[Any, float, float, dict[Any, str]]:
    """The configuration to answer with, milliseconds with the heuristic's own and with it, and what failed."""
    failures: dict[Any, str] = {}

    def timed(config: Any, options: Options) -> float:
        with tuning.forced(question, config):
            outcome = run(options)
        if isinstance(outcome, str):
            failures[config] = outcome
            return math.inf
        return outcome.timing.median

    plain = question.plain
    plain_ms = timed(plain, options)
    patient = replace(options, call_seconds=max(_LEAST_SECONDS, _TOO_SLOW * plain_ms / 1000))
    times = {}
    for number, config in enumerate(candidates, 1):
        reason = why_not(config)
        if reason is None:
            times[config] = timed(config, patient)
        else:
            failures[config] = reason
        tried(question, number, len(candidates))
    best = min(times, key=lambda config: times[config], default=plain)
    if _beats(times.get(best, math.inf), plain_ms):  # of many, it may have been lucky: it has to win again
        decisive = replace(options, seconds=_DECISIVE * options.seconds)
        plain_ms, best_ms = timed(plain, decisive), timed(best, decisive)
        if _beats(best_ms, plain_ms):
            return best, plain_ms, best_ms, failures
    return plain, plain_ms, plain_ms, failures


def _beats(milliseconds: float, plain: float) -> bool:
    return milliseconds < (1 - NOISE) * plain
