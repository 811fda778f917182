"""Results of a benchmark run, and the JSON file that they are kept in.

The file holds the records below, field by field. Reading is strict: a file that was cut short or edited by hand is an
error that says where, never a figure that nobody measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from tilegym.errors import ResultsError
from tilegym.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = 1
"""Version of the file's form; grows when a field changes its meaning."""

_LARGEST: Final = 1e30
"""No figure here comes near it, in any unit."""

Direction = Literal["forward", "backward"]
Unit = Literal["GB/s", "TFLOP/s"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clocks:
    """Clocks in MHz, as found when the run began; nobody set them."""

    sm: float
    memory: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """What the run was on."""

    name: str
    type: str
    """ "cuda" or "cpu"."""
    arch: str | None
    """ "sm_90"; None on a CPU."""
    num_sms: int | None
    memory_bytes: int | None
    driver: str | None
    clocks_mhz: Clocks | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceilings:
    """What this device can do at the most, measured in the same run."""

    copy_gbps: float
    """Bytes read and written by a copy, in 1e9 a second."""
    matmul_tflops: Mapping[str, float]
    """dtype → what PyTorch's own matrix product (cuBLAS on a GPU) reaches, in 1e12 a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One op on one case, dtype and backend, in one direction."""

    op: str
    case: str
    dtype: str
    direction: Direction
    backend: str
    peer: bool
    """Whether the backend is somebody else's code, there to be compared with."""
    size: int
    """What plots have as their x axis: bytes moved."""
    median_ms: float | None
    """None: there is no timing, and `error` says why."""
    low_ms: float | None
    """20th percentile."""
    high_ms: float | None
    """80th percentile."""
    bytes: int
    flops: int
    rate: float | None
    """Bytes or operations a second, in `unit`."""
    unit: Unit
    ceiling_percent: float | None
    """`rate` beside the ceiling of the same unit."""
    intensity: float
    """Operations a byte."""
    error: str | None
    graph: bool
    """Whether the calls were replayed from a CUDA graph."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """A run."""

    schema: int
    device: Device
    ceilings: Ceilings
    versions: Mapping[str, str]
    """Distribution → version."""
    date: str
    """ISO 8601, UTC."""
    commit: str | None
    """Of the checkout that the run was started in."""
    rows: tuple[Row, ...]


def check_writable(path: Path) -> None:
    """Raise ResultsError unless a file can be made there; asked before a long run rather than after."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ResultsError(f"results cannot be written to {path}: {error.strerror or error}") from error


def write(results: Results, path: Path) -> None:
    """Write a run to a file, whole or not at all: what stood there before stays until the new file is complete.

    Raises:
        ResultsError: the file cannot be written.
    """
    text = json.dumps(asdict(results), indent=1, allow_nan=False)
    try:
        write_whole(path, f"{text}\n")
    except OSError as error:
        raise ResultsError(f"results cannot be written to {path}: {error.strerror or error}") from error


def read(path: Path) -> Results:
    """A run from a file.

    Raises:
        ResultsError: there is no such file, it is no JSON, or a field is missing, unknown or of another type.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"{path} cannot be read as results of a benchmark: {error}") from error
    if isinstance(data, dict) and data.get("schema", SCHEMA) != SCHEMA:
        raise ResultsError(f"{path}: schema must be {SCHEMA}, got {data['schema']!r}; another TileGym wrote this file")
    results = _record(Results, data, str(path))
    if not _is_utc(results.date):
        expected = "2026-11-30T14:00:00+00:00"
        raise ResultsError(f"{path}: date: expected one such as {expected}, got {_shown(results.date)}")
    return results


def _is_utc(date: str) -> bool:
    try:
        return datetime.fromisoformat(date).utcoffset() == timedelta(0)
    except ValueError:
        return False


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)  # once a class: a file has thousands of rows


def _record(cls: type[T], data: Any, where: str) -> T:
    """A dataclass from a JSON object that has its fields and no others."""
    if not isinstance(data, dict):
        raise ResultsError(f"{where}: expected an object with the fields of {cls.__name__}, got {_shown(data)}")
    names = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # T is one of the dataclasses above
    if wrong := sorted(names ^ data.keys()):
        raise ResultsError(f"{where}: fields missing or unknown: {', '.join(wrong)}")
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy takes a class for something that cannot be hashed
    return cls(**{name: _value(hint, data[name], f"{where}: {name}") for name, hint in hints.items()})


def _value(hint: Any, data: Any, where: str) -> Any:
    """A value of the type that a field's hint names."""
    origin, args = get_origin(hint), get_args(hint)
    if NoneType in args:  # X | None
        return None if data is None else _value(args[0], data, where)
    if is_dataclass(hint):
        return _record(hint, data, where)  # type: ignore[arg-type]  # a class, not an instance
    if origin is tuple and isinstance(data, list):
        return tuple(_value(args[0], item, f"{where}[{index}]") for index, item in enumerate(data))
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(data, dict):
        return {key: _value(args[1], item, f"{where}[{key!r}]") for key, item in data.items()}
    if (hint in (str, bool) and type(data) is hint) or (origin is Literal and data in args):
        return data
    if hint in (int, float) and type(data) in (int, hint):
        if not 0 <= data < _LARGEST:
            raise ResultsError(f"{where}: expected a number from 0 on, got {_shown(data)}")
        return hint(data)
    expected = " or ".join(map(repr, args)) if origin is Literal else getattr(hint, "__name__", str(hint))
    raise ResultsError(f"{where}: expected {expected}, got {_shown(data)}")


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."
