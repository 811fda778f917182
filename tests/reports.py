"""Benchmark files to make pages of, with figures that can be checked in one's head."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tilegym.benchmarking.results import SCHEMA, Ceilings, Clocks, Device, Results, Row, write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GPU: Final = Device(
    name="Test GPU",
    type="cuda",
    arch="sm_90",
    num_sms=132,
    memory_bytes=128 * 2**30,
    driver="580.95",
    clocks_mhz=Clocks(sm=1980.0, memory=3201.0),
)
CPU: Final = Device(
    name="Test CPU", type="cpu", arch=None, num_sms=None, memory_bytes=None, driver=None, clocks_mhz=None
)
COPY_GBPS: Final = 4000.0
MATMUL_TFLOPS: Final = {"bfloat16": 800.0, "float32": 50.0}
HOSTILE: Final = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'&amp;ü"


def row(backend: str, milliseconds: float | None, **fields: Any) -> Row:
    """A row of softmax, 4e8 bytes and 5e8 operations, with the rate and the percent that its time makes."""
    made = Row(
        op="softmax",
        case="1024x1024",
        dtype="bfloat16",
        direction="forward",
        backend=backend,
        peer=False,
        size=400_000_000,
        median_ms=milliseconds,
        low_ms=None if milliseconds is None else milliseconds * 0.98,
        high_ms=None if milliseconds is None else milliseconds * 1.04,
        bytes=400_000_000,
        flops=500_000_000,
        rate=None,
        unit="GB/s",
        ceiling_percent=None,
        intensity=1.25,
        error=None,
        graph=False,
    )
    made = replace(made, **fields)
    if made.median_ms is None or "rate" in fields:
        return made
    rate = made.bytes / made.median_ms / 1e6
    return replace(made, rate=rate, ceiling_percent=100 * rate / COPY_GBPS)


def run(rows: Iterable[Row], **fields: Any) -> Results:
    """A run on the GPU."""
    made = Results(
        schema=SCHEMA,
        device=GPU,
        ceilings=Ceilings(copy_gbps=COPY_GBPS, matmul_tflops=MATMUL_TFLOPS),
        versions={"torch": "2.13.0"},
        date="2026-11-30T14:00:00+00:00",
        commit="0123456789abcdef",
        rows=tuple(rows),
    )
    return replace(made, **fields)


def saved(folder: Path, *runs: Results) -> list[Path]:
    """A file for each run."""
    files = [folder / f"run-{index}.json" for index, _ in enumerate(runs)]
    for file, one in zip(files, runs, strict=True):
        write(one, file)
    return files
