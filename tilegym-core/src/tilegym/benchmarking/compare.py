"""Two runs beside each other: how much longer each call takes in the second."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilegym.errors import ResultsError

if TYPE_CHECKING:
    from tilegym.benchmarking.results import Results, Row

Key = tuple[str, str, str, str, str, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One row in both runs."""

    before: Row
    after: Row

    @property
    def ratio(self) -> float | None:
        """Time after / time before, over 1: slower. None if there was no timing before; inf if there is none now."""
        old, new = self.before.median_ms, self.after.median_ms
        if old is None:
            return None
        return float("inf") if new is None else new / old

    def slower(self, threshold: float) -> bool:
        """Whether it takes more than `threshold` (0.05: 5 %) longer, or gives no timing any more."""
        return self.ratio is not None and self.ratio > 1 + threshold


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All of two runs."""

    changes: tuple[Change, ...]
    only_before: tuple[Row, ...]
    only_after: tuple[Row, ...]

    @property
    def geometric_mean(self) -> float | None:
        """Of the ratios of what both runs timed."""
        ratios = [change.ratio for change in self.changes if change.after.median_ms is not None and change.ratio]
        return statistics.geometric_mean(ratios) if ratios else None


def compare(before: Results, after: Results) -> Comparison:
    """Pair the rows of two runs on the same kind of device.

    Raises:
        ResultsError: the devices differ, so that a ratio would say nothing of the code.
    """
    old, new = before.device, after.device
    if (old.name, old.type, old.arch) != (new.name, new.type, new.arch):
        raise ResultsError(
            f"runs on unlike devices cannot be compared: {old.name} ({old.type}) and {new.name} ({new.type})"
        )
    first, second = ({_key(row): row for row in run.rows} for run in (before, after))
    return Comparison(
        changes=tuple(Change(before=row, after=second[key]) for key, row in first.items() if key in second),
        only_before=tuple(row for key, row in first.items() if key not in second),
        only_after=tuple(row for key, row in second.items() if key not in first),
    )


def _key(row: Row) -> Key:
    return row.op, row.case, row.dtype, row.direction, row.backend, row.graph
