"""Results of a benchmark run, and the JSON file that they are kept in.

The file holds the records below, field by field. Reading is strict: a file that was cut short or edited by hand is an
error that says where, never a figure that nobody measured.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping  # noqa: TC003 - `from_json` reads the annotations
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from tilegym.errors import RecordError, ResultsError
from tilegym.files import write_whole
from tilegym.records import from_json

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: Final = 1
"""Version of the file's form; grows when a field changes its meaning."""

Direction = Literal["forward", "backward"]
Unit = Literal["GB/s", "TFLOP/s"]


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
    norm_error: float | None = None
    """Of the result beside float64's, relative, in the 2-norm; of several outputs or gradients, the largest. None:
    there is no timing, or the file was written before this was kept."""


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
    if path.exists() and not path.is_file():
        raise ResultsError(f"results cannot be written to {path}: it is a folder or a device")
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
    try:
        results = from_json(Results, data, str(path))
    except RecordError as error:
        raise ResultsError(str(error)) from None
    if not _is_utc(results.date):
        expected = "2026-11-30T14:00:00+00:00"
        raise ResultsError(f"{path}: date: expected one such as {expected}, got {results.date!r}")
    return results


def _is_utc(date: str) -> bool:
    try:
        return datetime.fromisoformat(date).utcoffset() == timedelta(0)
    except ValueError:
        return False


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")
