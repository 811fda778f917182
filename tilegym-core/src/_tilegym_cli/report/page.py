"""The page: what it shows, and the text of it."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Final

import jinja2

from _tilegym_cli.report import charts
from _tilegym_cli.report.measurements import histories, newest, verdict
from tilegym.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _tilegym_cli.report.charts import Bars, Roofline, Trend
    from _tilegym_cli.report.conformance import Matrix
    from _tilegym_cli.report.measurements import Measurement, Verdict
    from tilegym.benchmarking.results import Results

_FOLDER: Final = Path(__file__).with_name("templates")
_HUES: Final = 6  # of style.css: backends beyond them share the last


@dataclass(frozen=True, kw_only=True, slots=True)
class OpSection:
    """What there is to say of one op on one device."""

    op: str
    device: str
    forward: Verdict
    backward: Verdict
    bars: Sequence[Bars]
    trends: Sequence[Trend]
    """Of our backends, not of peers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSection:
    """A device, its runs, and where its measurements lie below its ceilings."""

    name: str
    runs: Sequence[Results]
    """Newest first."""
    roofline: Roofline | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """Everything on the page."""

    matrix: Matrix
    measurements: Sequence[Measurement]
    """The newest of each."""
    sections: Sequence[OpSection]
    devices: Sequence[DeviceSection]
    peers: Sequence[str]
    """Backends that are there to be compared with."""
    hues: Mapping[str, str]
    """Backend → its class in the style sheet; peers have none of their own."""
    choices: Sequence[tuple[str, str, Sequence[str]]]
    """Name, label and values of each filter."""
    made: datetime


def make_page(runs: Sequence[Results], matrix: Matrix) -> Page:
    """What the page shows of these runs and of what is installed."""
    traced = histories(runs)
    current = newest(traced)
    by_type = sorted(runs, key=lambda run: (run.device.type == "cpu", run.device.name))
    devices = list(dict.fromkeys(run.device.name for run in by_type))
    ours = _distinct(one.row.backend for one in current if not one.row.peer)
    return Page(
        matrix=matrix,
        measurements=current,
        sections=[_op_section(op, device, traced) for op, device in _ops_and_devices(current)],
        devices=[_device_section(device, runs, current) for device in devices],
        peers=_distinct(one.row.backend for one in current if one.row.peer),
        hues={backend: f"hue-{min(index, _HUES)}" for index, backend in enumerate(ours, start=1)},
        choices=[
            ("op", "Op", _distinct(one.call.op for one in current)),
            ("dtype", "Data type", _distinct(one.call.dtype for one in current)),
            ("device", "Device", _distinct(one.call.device for one in current)),
            ("direction", "Direction", _distinct(one.call.direction for one in current)[::-1]),
        ],
        made=datetime.now(timezone.utc),
    )


def _distinct(names: Iterable[str]) -> list[str]:
    return sorted(set(names))


def _ops_and_devices(found: Iterable[Measurement]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((one.call.op, one.call.device) for one in found))


def _op_section(op: str, device: str, traced: Iterable[Sequence[Measurement]]) -> OpSection:
    own = [one for one in traced if (one[0].call.op, one[0].call.device) == (op, device)]
    current = newest(own)
    return OpSection(
        op=op,
        device=device,
        forward=verdict(one for one in current if one.call.direction == "forward"),
        backward=verdict(one for one in current if one.call.direction == "backward"),
        bars=charts.bars(current),
        trends=[line for one in own if not one[0].row.peer and (line := charts.trend(one)) is not None],
    )


def _device_section(device: str, runs: Iterable[Results], current: Iterable[Measurement]) -> DeviceSection:
    own = sorted((run for run in runs if run.device.name == device), key=lambda run: run.date, reverse=True)
    found = (one for one in current if one.call.device == device)
    return DeviceSection(name=device, runs=own, roofline=charts.roofline(found, own[0].ceilings))


def render(page: Page) -> str:
    """The page as HTML. Whatever it shows is escaped, and its policy lets nothing run or load but what is in it."""
    script, style = (_FOLDER.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "style.css"))
    policy = f"default-src 'none'; script-src {_source(script)}; style-src {_source(style)}; img-src data:"
    text = _template().render(page=page, charts=charts, script=script, style=style, policy=policy)
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON may hold half a character, a file may not


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "figure": _figure,
        "grouped": _grouped,
        "instant": _instant,
        "microseconds": _microseconds,
    }
    return environment.get_template("page.html.j2")


def _source(text: str) -> str:
    """How a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _shown(value: object) -> object:
    return "–" if value is None else value


def _microseconds(milliseconds: float) -> str:
    return f"{milliseconds * 1e3:,.1f}"


def _figure(value: float) -> str:
    """`4,102.3`, or three digits of what is below 1."""
    return f"{value:,.1f}" if value >= 1 else f"{value:.3g}"


def _grouped(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}"


def _instant(date: str | datetime) -> str:
    """`2026-11-30 14:05 UTC`."""
    moment = datetime.fromisoformat(date) if isinstance(date, str) else date
    return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
