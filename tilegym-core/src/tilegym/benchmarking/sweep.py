"""Sweeps: many cases of some ops, in a Python file of their own (`benchmarks/sweeps`), that `tilegym bench` times.

Such a file defines `SWEEP`, a sequence of `Series`.
"""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from tilegym.benchmarking.plan import Plan, plan
from tilegym.contract import Sample
from tilegym.errors import BenchmarkError
from tilegym.text import listed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from tilegym.benchmarking.plan import Entry

_NAME: Final = "SWEEP"


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Cases of one op."""

    op: str
    dtypes: tuple[torch.dtype, ...]
    """Each case is timed in all of them."""
    samples: tuple[Sample, ...]
    """Named by their sizes, as the cases of contracts are."""
    graph: bool = False
    """Whether calls are replayed from a CUDA graph, as where what the CPU spends on one would hide the GPU's time."""

    def __post_init__(self) -> None:
        """Refuse what is no tuple of such: a comma is soon forgotten."""
        for name, kind in (("dtypes", torch.dtype), ("samples", Sample)):
            given = getattr(self, name)
            if not isinstance(given, (tuple, list)) or not all(isinstance(one, kind) for one in given):
                raise TypeError(
                    f"{name} of the series of {self.op}: expected a tuple of {kind.__name__}, got {given!r}"
                )


def load(path: Path) -> tuple[Series, ...]:
    """The series of a file.

    Raises:
        BenchmarkError: there is no such file, it raises, or it defines none.
    """
    try:
        found = runpy.run_path(str(path)).get(_NAME)
    except (Exception, SystemExit) as error:
        raise BenchmarkError(f"sweep {path} cannot be read: {type(error).__name__}: {error}") from error
    series = tuple(found) if isinstance(found, (list, tuple)) else ()
    if not series or not all(isinstance(one, Series) for one in series):
        raise BenchmarkError(f"sweep {path}: expected {_NAME}, a sequence of tilegym.benchmarking.sweep.Series")
    return series


def plan_sweep(
    sweep: Sequence[Series],
    device: torch.device,
    *,
    ops: Collection[str] = (),
    dtypes: Collection[torch.dtype] | None = None,
    backends: Sequence[str] | None = None,
    quick: bool = False,
    backward: bool = False,
) -> Plan:
    """What to time of a sweep.

    Args:
        sweep: its series, in order.
        device: where the tensors are.
        ops: those of these ops alone; none: all.
        dtypes: in these dtypes alone; None: all.
        backends: names, of which those that implement an op take part; None: all that can run on the device, peers too.
        quick: a few small cases of each series alone.
        backward: gradients too, where an op has them.

    Raises:
        BenchmarkError: the sweep has no cases of an op that is named.
    """
    has = {series.op for series in sweep}
    if strangers := [op for op in ops if op not in has]:
        raise BenchmarkError(f"the sweep has no cases of {listed(strangers)}, but of {listed(has)}")
    entries: list[Entry] = []
    left_out: dict[str, str] = {}
    for series in sweep:
        wanted = [dtype for dtype in series.dtypes if dtypes is None or dtype in dtypes]
        if not wanted or (ops and series.op not in ops):
            continue
        found = plan(
            [series.op],
            wanted,
            device,
            backends=backends,
            quick=quick,
            backward=backward,
            samples={series.op: series.samples},
            graph=series.graph,
        )
        entries += found.entries
        left_out |= found.left_out
    return Plan(entries=tuple(entries), left_out=left_out)
