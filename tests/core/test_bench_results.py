"""The file that results of a benchmark are kept in: whole, strict, and never half written."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from _tilegym_cli.bench_tables import by_label
from tilegym.benchmarking.beside import beside_peers
from tilegym.benchmarking.results import SCHEMA, Ceilings, Clocks, Device, Results, Row, read, write
from tilegym.errors import ResultsError

ROW = Row(
    op="softmax",
    case="32768x1024",
    dtype="bfloat16",
    direction="forward",
    backend="cutile",
    peer=False,
    size=134217728,
    median_ms=0.04,
    low_ms=0.039,
    high_ms=0.041,
    bytes=134217728,
    flops=167772160,
    rate=3355.4,
    unit="GB/s",
    ceiling_percent=79.0,
    intensity=1.25,
    error=None,
    graph=False,
)
RESULTS = Results(
    schema=SCHEMA,
    device=Device(
        name="NVIDIA H200",
        type="cuda",
        arch="sm_90",
        num_sms=132,
        memory_bytes=150_000_000_000,
        driver="580.1",
        clocks_mhz=Clocks(sm=1980.0, memory=3201.0),
    ),
    ceilings=Ceilings(copy_gbps=4249.0, matmul_tflops={"bfloat16": 785.0}),
    versions={"torch": "2.11.0"},
    date="2026-11-30T14:00:00+00:00",
    commit=None,
    rows=(ROW, replace(ROW, backend="eager", peer=True, median_ms=None, rate=None, error="wrong: nan")),
)


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "new" / "folder" / "run.json"
    write(RESULTS, file)
    assert read(file) == RESULTS
    assert [*json.loads(file.read_text())] == ["schema", "device", "ceilings", "versions", "date", "commit", "rows"]
    assert [path.name for path in file.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("commit"), "fields missing or unknown: commit"),
        (lambda data: data.update(speed=1), "fields missing or unknown: speed"),
        (lambda data: data.update(schema=2), "schema must be 1, got 2; another TileGym wrote this file"),
        (lambda data: data.update(rows={}), "rows: expected tuple, got {}"),
        (lambda data: data["device"].update(num_sms="many"), "device: num_sms: expected int, got 'many'"),
        (lambda data: data["rows"][1].update(median_ms="1"), r"rows\[1\]: median_ms: expected float, got '1'"),
        (lambda data: data["rows"][0].update(peer=0), r"rows\[0\]: peer: expected bool, got 0"),
        (lambda data: data["rows"][0].update(size=True), r"rows\[0\]: size: expected int, got True"),
        (lambda data: data["rows"][0].update(rate=-1.0), r"rows\[0\]: rate: expected a number from 0 on, got -1.0"),
        (lambda data: data["rows"][0].update(rate=float("nan")), "NaN is no number"),
        (lambda data: data["rows"][0].update(flops=10**400), r"rows\[0\]: flops: .* from 0 on, got 1000"),
        (lambda data: data.update(date="yesterday"), "date: expected one such as .*, got 'yesterday'"),
        (lambda data: data.update(date="2026-11-30T14:00:00"), "date: expected one such as"),
        (lambda data: data["rows"][0].update(unit="m/s"), r"rows\[0\]: unit: expected 'GB/s' or 'TFLOP/s', got 'm/s'"),
        (lambda data: data["ceilings"]["matmul_tflops"].update(half=None), r"matmul_tflops\['half'\]: expected float"),
    ],
)
def test_a_broken_file_says_where(tmp_path, change, message):
    file = tmp_path / "run.json"
    write(RESULTS, file)
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    with pytest.raises(ResultsError, match=message) as caught:
        read(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("text", ["", '{"schema": 1, "rows": [', "[1]", "\x00", '{"schema": NaN}', "[" * 100_000])
def test_no_results_at_all(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(ResultsError, match=r"run\.json"):
        read(file)
    with pytest.raises(ResultsError, match="No such file"):
        read(tmp_path / "absent.json")


@pytest.mark.parametrize("fault", ["full", "folder"])
def test_a_failed_write_loses_nothing(tmp_path, monkeypatch, fault):
    file = tmp_path / "folder" / "run.json"
    write(RESULTS, file)
    if fault == "full":

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr(Path, "replace", fail)
        with pytest.raises(ResultsError, match=r"cannot be written to .*run\.json: No space left on device"):
            write(replace(RESULTS, commit="abc"), file)
        assert read(file) == RESULTS
    else:
        with pytest.raises(ResultsError, match="cannot be written to"):
            write(RESULTS, file / "below.json")
    assert [path.name for path in file.parent.iterdir()] == ["run.json"]


def test_a_case_timed_with_and_without_a_graph_is_two():
    """As where two series of a sweep have it: neither hides the other."""
    peer = replace(ROW, backend="eager", peer=True, median_ms=0.08)
    rows = (ROW, peer, replace(ROW, graph=True, median_ms=0.02), replace(peer, graph=True))
    assert [(one.graph, dict(one.ratios)) for one in beside_peers(rows)] == [
        (False, {"32768x1024": 2.0}),
        (True, {"32768x1024": 4.0}),
    ]
    assert [*by_label(rows[::2]).items()] == [
        ("softmax 32768x1024 bfloat16 forward cutile", "0.04 ms"),
        ("softmax 32768x1024 bfloat16 forward, graph cutile", "0.02 ms"),
    ]
