"""Plots: the speed of each backend by case, from the smallest to the largest, below the device's ceiling.

Below that, where there are peers, how much longer they take.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tilegym.benchmarking.beside import beside_peers
from tilegym.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tilegym.benchmarking.beside import Beside
    from tilegym.benchmarking.results import Ceilings, Results, Row, Unit

SUFFIX: Final[Mapping[Unit, str]] = {"GB/s": "GBps", "TFLOP/s": "TFLOPS"}
"""How names of plots end."""
_MARKERS: Final = "osD^vPX*"
_WIDTH_OF_CASE: Final = 0.35  # inches, of many
_FAR_APART: Final = 30  # rates that one linear axis cannot show, as those of an interpreter beside torch's


def plot(results: Results, folder: Path) -> list[Path]:
    """Write a PNG for each op, dtype and direction, and return their paths; rows without a timing are no points.

    Raises:
        BenchmarkError: matplotlib is not installed, or the folder cannot be written.
    """
    check_installed()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in results.rows:
        if row.median_ms is not None:
            groups.setdefault((row.op, row.dtype, row.direction), []).append(row)
    written = []
    for (op, dtype, direction), rows in groups.items():
        unit = max(rows, key=lambda row: row.flops).unit
        with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
            cases = {row.case: row for row in sorted(rows, key=lambda row: row.size)}  # case → a row with its size
            beside = beside_peers(rows)
            width = max(8.0, 2 + _WIDTH_OF_CASE * len(cases))
            figure = Figure(figsize=(width, 7.5 if beside else 4.5), layout="constrained")
            speeds, *ratios = figure.subplots(1 + bool(beside), sharex=True, squeeze=False)[:, 0]
            _draw(speeds, cases, rows, unit, results.ceilings)
            for axes in ratios:
                _draw_ratios(axes, [*cases], beside)
            _name_cases(figure.axes[-1], cases)
            figure.suptitle(f"{op}, {dtype}, {direction}, on {results.device.name}", x=0.01, ha="left")
            path = folder / f"{op}-{dtype}-{direction}-{SUFFIX[unit]}.png"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, dpi=150)
            except OSError as error:
                raise BenchmarkError(f"plots cannot be written to {folder}: {error.strerror or error}") from error
        written.append(path)
    return written


def check_installed() -> None:
    """Raise BenchmarkError unless matplotlib is installed; asked before a long run rather than after."""
    try:
        import matplotlib as mpl  # noqa: F401 - whether it imports is the question
    except ImportError as error:
        raise BenchmarkError(
            f"plots need matplotlib: python3 -m pip install matplotlib, or extra `bench` of tilegym-core ({error})"
        ) from error


def _draw(axes: Any, cases: Mapping[str, Row], rows: Sequence[Row], unit: Unit, ceilings: Ceilings) -> None:
    """Lines of backends over the cases, peers dashed, and above them what the device allows."""
    at = {case: index for index, case in enumerate(cases)}
    axes.plot(
        range(len(cases)),
        [_limit(row, unit, ceilings) for row in cases.values()],
        color="black",
        linestyle=":",
        label="ceiling",
    )
    backends = sorted({(row.peer, row.backend) for row in rows})
    for (peer, backend), marker in zip(backends, _MARKERS * len(backends), strict=False):
        own = sorted((row for row in rows if row.backend == backend), key=lambda row: at[row.case])
        low, middle, high = ([_rate(row, unit, ms) for row in own] for ms in ("high_ms", "median_ms", "low_ms"))
        places = [at[row.case] for row in own]
        (line,) = axes.plot(places, middle, marker=marker, linestyle="--" if peer else "-", label=backend)
        axes.fill_between(places, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_ylabel(unit)
    rates = [_rate(row, unit, "median_ms") for row in rows]
    if max(rates) > _FAR_APART * min(rates):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _draw_ratios(axes: Any, cases: Sequence[str], beside: Sequence[Beside]) -> None:
    """A line for each backend and peer; above 1 the backend is faster."""
    axes.axhline(1, color="black", linestyle=":")
    for one, marker in zip(beside, _MARKERS * len(beside), strict=False):
        places = [cases.index(case) for case in one.ratios]
        order = sorted(range(len(places)), key=places.__getitem__)
        ratios = [*one.ratios.values()]
        label = (
            f"{one.peer} / {one.backend}\ngeometric mean {one.geometric_mean:.3f}\nworst {one.ratios[one.worst]:.3f}"
        )
        axes.plot([places[index] for index in order], [ratios[index] for index in order], marker=marker, label=label)
    axes.set_ylabel("ratio of times")
    if max(max(one.ratios.values()) for one in beside) > _FAR_APART:
        axes.set_yscale("log")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _name_cases(axes: Any, cases: Mapping[str, Row]) -> None:
    axes.set_xticks(range(len(cases)), [f"{case}\n{_size(row.size)}" for case, row in cases.items()])
    axes.tick_params(axis="x", labelrotation=0 if len(cases) <= 6 else 30 if len(cases) <= 20 else 90)
    axes.set_xlabel("case, and bytes moved")


def _rate(row: Row, unit: Unit, field: str) -> float:
    milliseconds: float = getattr(row, field)
    return row.bytes * 1e-6 / milliseconds if unit == "GB/s" else row.flops * 1e-9 / milliseconds


def _limit(row: Row, unit: Unit, ceilings: Ceilings) -> float:
    """The roofline at the case's operations a byte."""
    compute = ceilings.matmul_tflops.get(row.dtype, math.inf)
    if unit == "TFLOP/s":
        return min(compute, row.intensity * ceilings.copy_gbps / 1000)
    return ceilings.copy_gbps


def _size(number: int) -> str:
    """`268 MB`."""
    for factor, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= factor:
            return f"{number / factor:.3g} {name}"
    return f"{number} B"
