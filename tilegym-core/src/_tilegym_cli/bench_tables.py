"""What `tilegym bench` shows of a run."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from _tilegym_cli.tables import console, lines, table

if TYPE_CHECKING:
    from tilegym.benchmarking.beside import Beside
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Results, Row


def label(row: Row) -> tuple[str, ...]:
    """What tells a row of a run from the others."""
    return row.op, row.case, row.dtype, _way(row), row.backend


def _way(row: Row | Beside) -> str:
    return f"{row.direction}, graph" if row.graph else row.direction


def by_label(rows: tuple[Row, ...]) -> dict[str, str]:
    """Label → the time, or why there is none."""
    return {" ".join(label(row)): row.error or f"{milliseconds(row)} ms" for row in rows}


def milliseconds(row: Row) -> str | None:
    """Its median."""
    return None if row.median_ms is None else f"{row.median_ms:.4g}"


def show_run(found: Results, planned: Plan) -> None:
    """The table, the ratios to peers, and below them what has no timing, and why."""
    from tilegym.benchmarking.beside import beside_peers

    target = console()
    matmul = ", ".join(f"{dtype} {value:.4g}" for dtype, value in found.ceilings.matmul_tflops.items())
    facts = {
        "device": found.device.name,
        "ceilings": f"copy {found.ceilings.copy_gbps:,.0f} GB/s; matrix product {matmul or 'none'} TFLOP/s",
    }
    lines(target, "Here", facts)
    rows = sorted(found.rows, key=attrgetter("op", "dtype"))
    cells = [
        (*label(row), milliseconds(row), _spread(row), f"{row.rate:,.4g}", row.unit, f"{row.ceiling_percent:.1f}")
        for row in rows
        if row.rate is not None and row.ceiling_percent is not None
    ]
    headings = ("op", "case", "dtype", "way", "backend", "ms", "20-80 %", "rate", "unit", "% of ceiling")
    table(target, "Medians; results were right", headings, cells)
    beside = [
        (
            *(one.op, one.dtype, _way(one), one.backend, one.peer, len(one.ratios)),
            *(f"{one.geometric_mean:.3f}", f"{one.ratios[one.worst]:.3f}", one.worst),
            f"{max(one.errors.values()):.3f}" if one.errors else None,
        )
        for one in beside_peers(found.rows)
    ]
    if beside:
        names = ("op", "dtype", "way", "backend", "peer", "cases", "geometric mean", "worst", "at", "largest error")
        table(target, "Beside peers: their time / the backend's; the backend's error / theirs", names, beside)
    lines(target, "Not timed", {" ".join(label(row)): row.error for row in rows if row.error is not None})
    lines(target, "Left out", dict(planned.left_out))


def _spread(row: Row) -> str:
    return f"{row.low_ms:.4g}-{row.high_ms:.4g}"
