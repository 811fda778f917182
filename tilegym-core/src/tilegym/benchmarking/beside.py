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
    graph: bool
    """Whether both were replayed from CUDA graphs."""
    backend: str
    peer: str
    ratios: Mapping[str, float]
    """Case → the peer's time / the backend's, over 1: the backend is faster. In the order of the run."""
    errors: Mapping[str, float]
    """Case → the backend's error beside float64 / the peer's, over 1: the peer is more accurate."""

    @property
    def geometric_mean(self) -> float:
        """Of the ratios."""
        return statistics.geometric_mean(self.ratios.values())

    @property
    def worst(self) -> str:
        """The case with the least ratio."""
        return min(self.ratios, key=lambda case: self.ratios[case])


def beside_peers(rows: Iterable[Row]) -> list[Beside]:
    """Each backend that is no peer, beside each peer, for each op, dtype and direction, and from graphs or not."""
    groups: dict[tuple[str, str, str, bool], list[Row]] = {}
    for row in rows:
        if row.median_ms is not None:
            groups.setdefault((row.op, row.dtype, row.direction, row.graph), []).append(row)
    found = []
    for (op, dtype, direction, graph), timed in groups.items():
        backends: dict[tuple[bool, str], dict[str, Row]] = {}
        for row in timed:
            backends.setdefault((row.peer, row.backend), {})[row.case] = row
        for (is_peer, backend), own in backends.items():
            for (is_other, peer), others in backends.items():
                pairs = [(row, others[case]) for case, row in own.items() if case in others]
                if pairs and is_other and not is_peer:
                    names = {"op": op, "dtype": dtype, "direction": direction, "backend": backend, "peer": peer}
                    found.append(Beside(**names, graph=graph, ratios=_ratios(pairs), errors=_errors(pairs)))
    return found


def _ratios(pairs: Iterable[tuple[Row, Row]]) -> dict[str, float]:
    return {own.case: other.median_ms / own.median_ms for own, other in pairs if own.median_ms and other.median_ms}


def _errors(pairs: Iterable[tuple[Row, Row]]) -> dict[str, float]:
    return {own.case: own.norm_error / other.norm_error for own, other in pairs if own.norm_error and other.norm_error}
