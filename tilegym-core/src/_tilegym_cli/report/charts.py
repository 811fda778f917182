"""The charts' coordinates; the templates draw them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _tilegym_cli.report.measurements import Measurement
    from tilegym.benchmarking.results import Ceilings

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 712, 16, 352
_BEYOND: Final = 0.4  # decades
_SUPERSCRIPT: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LABEL_HEIGHT: Final = 30  # of the largest text, which phones get


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A logarithmic axis, from one coordinate to another."""

    low: float
    """Exponent of the least value."""
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float) -> Axis:
        """An axis with room for all values, which are positive, and a little beyond; at least two decades."""
        exponents = [math.log10(value) for value in values]
        low, high = min(exponents), max(exponents)
        room = max(_BEYOND, 1 - (high - low) / 2)
        return cls(low=low - room, high=high + room, start=start, end=end)

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Coordinate and label of each decade."""
        for exponent in range(math.ceil(self.low), math.floor(self.high) + 1):
            power = str(exponent).translate(_SUPERSCRIPT)
            yield self(10.0**exponent), {0: "1", 1: "10"}.get(exponent, f"10{power}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A measurement in the plane."""

    x: float
    y: float
    measurement: Measurement


@dataclass(frozen=True, kw_only=True, slots=True)
class Roof:
    """A ceiling as a line, and the words on it."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str = ""
    """Empty where the label of the roof just above speaks for this one too."""

    @property
    def angle(self) -> float:
        """In degrees, as `rotate` takes it."""
        return round(math.degrees(math.atan2(self.y2 - self.y1, self.x2 - self.x1)), 1)

    def along(self, part: float) -> tuple[float, float]:
        """The point so far along the line: 0 is its beginning, 1 its end."""
        return round(self.x1 + part * (self.x2 - self.x1), 1), round(self.y1 + part * (self.y2 - self.y1), 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """Throughput over arithmetic intensity, below the device's ceilings."""

    intensity: Axis
    """FLOP a byte."""
    throughput: Axis
    """TFLOP/s."""
    memory: Roof
    """What a copy reaches."""
    roofs: tuple[Roof, ...]
    """What matrix products of each dtype reach."""
    points: tuple[Point, ...]
    left_out: int
    """Measurements without operations, which have no place on it."""

    @property
    def backends(self) -> set[str]:
        """Those with a point."""
        return {point.measurement.row.backend for point in self.points}


def roofline(found: Iterable[Measurement], ceilings: Ceilings) -> Roofline | None:
    """The measurements of one device; None: it has no ceiling, or nothing that was timed has operations."""
    timed = [one for one in found if one.row.median_ms]
    drawn = sorted(
        (one for one in timed if one.rate and one.tflops > 0 and one.row.intensity > 0),
        key=lambda one: not one.row.peer,  # ours on top
    )
    peaks = {dtype: peak for dtype, peak in ceilings.matmul_tflops.items() if peak > 0}
    if not drawn or not peaks or ceilings.copy_gbps <= 0:
        return None
    slope = ceilings.copy_gbps / 1e3  # TFLOP/s at one operation a byte
    highest = max(peaks.values())
    ridge = highest / slope
    x = Axis.over([*(one.row.intensity for one in drawn), ridge], LEFT, RIGHT)
    y = Axis.over([*(one.tflops for one in drawn), *peaks.values()], BOTTOM, TOP)
    start = max(10.0**x.low, 10.0**y.low / slope)
    memory = Roof(
        x1=x(start), y1=y(start * slope), x2=x(ridge), y2=y(highest), label=f"copy {ceilings.copy_gbps:,.4g} GB/s"
    )
    return Roofline(
        intensity=x,
        throughput=y,
        memory=memory,
        roofs=tuple(_roofs(peaks, slope, x, y)),
        points=tuple(Point(x=x(one.row.intensity), y=y(one.tflops), measurement=one) for one in drawn),
        left_out=len(timed) - len(drawn),
    )


def _roofs(peaks: dict[str, float], slope: float, x: Axis, y: Axis) -> Iterator[Roof]:
    """A roof per dtype, highest first; those too near each other for a label each share one."""
    ordered = sorted(peaks.items(), key=lambda item: -item[1])
    labels: list[tuple[float, list[str]]] = []  # height of the highest roof → what its label says
    for dtype, peak in ordered:
        if not labels or y(peak) - labels[-1][0] > _LABEL_HEIGHT:
            labels.append((y(peak), []))
        labels[-1][1].append(f"{dtype} {peak:,.4g}")
    texts = itertools.chain.from_iterable(
        [f"{' · '.join(said)} TFLOP/s", *[""] * (len(said) - 1)] for _, said in labels
    )
    for (_, peak), text in zip(ordered, texts, strict=True):
        yield Roof(x1=max(LEFT, x(peak / slope)), y1=y(peak), x2=RIGHT, y2=y(peak), label=text)


SPARK_WIDTH, SPARK_HEIGHT, _SPARK_MARGIN = 120, 28, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """How one call's rate on a backend came about, run by run."""

    points: tuple[Point, ...]
    """Oldest first; at least two."""

    @property
    def first(self) -> Measurement:
        """Where it began."""
        return self.points[0].measurement

    @property
    def last(self) -> Measurement:
        """Where it stands."""
        return self.points[-1].measurement

    @property
    def change_percent(self) -> float:
        """From the first to the last rate."""
        return (self.last.rate / self.first.rate - 1) * 100

    @property
    def path(self) -> str:
        """The points as an SVG polyline has them."""
        return " ".join(f"{point.x},{point.y}" for point in self.points)


def trend(history: Sequence[Measurement]) -> Trend | None:
    """A line over the runs, evenly spaced; None: fewer than two of them were timed.

    The line's height is the range from zero to the best rate, so that a flat line is a steady rate.
    """
    timed = [one for one in history if one.rate]
    if len(timed) < 2:
        return None
    best = max(one.rate for one in timed)
    width = (SPARK_WIDTH - 2 * _SPARK_MARGIN) / (len(timed) - 1)
    height = SPARK_HEIGHT - 2 * _SPARK_MARGIN
    return Trend(
        points=tuple(
            Point(
                x=round(_SPARK_MARGIN + index * width, 1),
                y=round(SPARK_HEIGHT - _SPARK_MARGIN - one.rate / best * height, 1),
                measurement=one,
            )
            for index, one in enumerate(timed)
        )
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One backend's throughput, as a part of its card's scale."""

    measurement: Measurement
    percent: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Bars:
    """The backends side by side on the largest case of one op, device, direction and dtype."""

    bars: tuple[Bar, ...]
    """Fastest first."""
    to_ceiling: bool
    """Whether a full bar is the device's ceiling, or the fastest of these."""


def bars(found: Iterable[Measurement]) -> list[Bars]:
    """A chart per direction and dtype of the measurements, which are of one op and device."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for one in found:
        if one.rate:
            groups.setdefault((one.call.direction, one.call.dtype), []).append(one)
    return [_bars(group) for group in groups.values()]


def _bars(group: Sequence[Measurement]) -> Bars:
    largest = max(group, key=lambda one: one.call.size).call
    same = sorted((one for one in group if one.call == largest), key=lambda one: -one.rate)
    percents = [one.row.ceiling_percent for one in same if one.row.ceiling_percent is not None]
    to_ceiling = len(percents) == len(same) and max(percents) <= 100
    if not to_ceiling:  # it is unknown, or was surpassed, as by what lies in a cache
        percents = [one.rate / same[0].rate * 100 for one in same]
    bars = (Bar(measurement=one, percent=round(percent, 1)) for one, percent in zip(same, percents, strict=True))
    return Bars(bars=tuple(bars), to_ceiling=to_ceiling)
