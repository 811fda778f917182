"""Backends beside peers: ratios of times that one run took in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tilegym.benchmarking.results import Row


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """A backend beside a peer, on the cases of an op that both were timed on."""

    op: str
    dtype: str
    direction: str
    backend: str
    peer: str
    ratios: Mapping[str, float]
    """Case → the peer's time / the backend's, over 1: the backend is faster. In the order of the run."""

    @property
    def geometric_mean(self) -> float:
        """Of the ratios."""
        return statistics.geometric_mean(self.ratios.values())

    @property
    def worst(self) -> str:
        """The case with the least ratio."""
        return min(self.ratios, key=lambda case: self.ratios[case])


def beside_peers(rows: Iterable[Row]) -> list[Beside]:
    """Each backend that is no peer, beside each peer, for each op, dtype and direction."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.median_ms is not None:
            groups.setdefault((row.op, row.dtype, row.direction), []).append(row)
    found = []
    for (op, dtype, direction), timed in groups.items():
        peers: dict[str, dict[tuple[str, bool], float]] = {}
        own: dict[str, dict[tuple[str, bool], float]] = {}
        for row in timed:
            times = (peers if row.peer else own).setdefault(row.backend, {})
            times[row.case, row.graph] = row.median_ms or 0.0
        for backend, times in own.items():
            for peer, others in peers.items():
                ratios = {key[0]: others[key] / milliseconds for key, milliseconds in times.items() if key in others}
                if ratios:
                    names = {"op": op, "dtype": dtype, "direction": direction, "backend": backend, "peer": peer}
                    found.append(Beside(**names, ratios=ratios))
    return found
