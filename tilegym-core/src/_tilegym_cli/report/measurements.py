"""Benchmark files joined: the newest measurement of each thing, what it is against its peers, and how it came about."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tilegym.benchmarking.results import Results, Row


class Call(NamedTuple):
    """What was timed, whoever served it."""

    device: str
    op: str
    direction: str
    dtype: str
    size: int
    case: str
    graph: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One row of a file, beside the peers' rows of the same run."""

    call: Call
    row: Row
    run: Results
    against: Mapping[str, float]
    """By peer: how many times as fast as it. Empty for a peer's own row."""

    @property
    def best_peer(self) -> str | None:
        """The fastest peer, which is the one to beat; None: no peer was timed."""
        return min(self.against, key=self.against.__getitem__, default=None)

    @property
    def against_best(self) -> float | None:
        """How many times as fast as the fastest peer."""
        return min(self.against.values(), default=None)

    @property
    def spread(self) -> float | None:
        """Half the distance between the low and the high time, in milliseconds."""
        row = self.row
        return None if row.low_ms is None or row.high_ms is None else (row.high_ms - row.low_ms) / 2

    @property
    def rate(self) -> float:
        """The row's, or 0 where there is no timing."""
        return self.row.rate or 0.0

    @property
    def tflops(self) -> float:
        """Operations a second, in 1e12; 0 where there is no timing."""
        return self.row.flops / self.row.median_ms / 1e9 if self.row.median_ms else 0.0


def measurements(run: Results) -> list[Measurement]:
    """The rows of one run, each against the peers that were timed beside it."""
    calls = [_call(run, row) for row in run.rows]
    peers: dict[Call, dict[str, float]] = {}
    for call, row in zip(calls, run.rows, strict=True):
        if row.peer and row.median_ms:
            peers.setdefault(call, {})[row.backend] = row.median_ms
    return [
        Measurement(call=call, row=row, run=run, against={} if row.peer else _against(row, peers.get(call, {})))
        for call, row in zip(calls, run.rows, strict=True)
    ]


def _call(run: Results, row: Row) -> Call:
    return Call(run.device.name, row.op, row.direction, row.dtype, row.size, row.case, row.graph)


def _against(row: Row, peers: Mapping[str, float]) -> dict[str, float]:
    return {peer: time / row.median_ms for peer, time in peers.items()} if row.median_ms else {}


def newest(history: Iterable[Sequence[Measurement]]) -> list[Measurement]:
    """The last measurement of each history; calls in order of op, device, direction, dtype and size, fastest first."""

    def order(found: Measurement) -> tuple[object, ...]:
        call = found.call
        device = found.run.device.type == "cpu", call.device
        speed = -1 / found.row.median_ms if found.row.median_ms else 0.0
        return call.op, device, call.direction != "forward", call.dtype, call.size, call.case, call.graph, speed

    return sorted((one[-1] for one in history), key=order)


def histories(runs: Iterable[Results]) -> list[list[Measurement]]:
    """Every measurement of a call on a backend, oldest first."""
    found: dict[tuple[Call, str], list[Measurement]] = {}
    for run in sorted(runs, key=lambda run: run.date):
        for one in measurements(run):
            found.setdefault((one.call, one.row.backend), []).append(one)
    return [*found.values()]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """An op on a device in one direction, all its cases together."""

    cases: int
    against_best: float | None
    """The geometric mean, over cases, of the fastest backend's speed against the fastest peer's."""
    ceiling_percent: float | None
    """The median, over cases, of the fastest backend's percent of the ceiling."""


def verdict(found: Iterable[Measurement]) -> Verdict:
    """What to say of an op on a device in one direction."""
    fastest: dict[Call, Measurement] = {}
    for one in found:
        if one.row.median_ms and not one.row.peer:
            before = fastest.get(one.call)
            if before is None or one.row.median_ms < (before.row.median_ms or math.inf):
                fastest[one.call] = one
    ratios = [one.against_best for one in fastest.values() if one.against_best is not None]
    percents = [one.row.ceiling_percent for one in fastest.values() if one.row.ceiling_percent is not None]
    return Verdict(
        cases=len(fastest),
        against_best=statistics.geometric_mean(ratios) if ratios else None,
        ceiling_percent=statistics.median(percents) if percents else None,
    )
