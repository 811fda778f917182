"""`tilegym tune` on the interpreter: what it shows, keeps and writes. Times are made up: here they mean nothing."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import tilegym
from _tilegym_cli import app
from tilegym import cache, config
from tilegym.benchmarking import suite
from tilegym.benchmarking.timing import Timing
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import RecordError, ResultsError
from tilegym_cutile import search, tables, tune_command, tuning
from tilegym_cutile.ops import softmax as kernels
from tilegym_cutile_cpu import backend
from tilegym_cutile_cpu.backend import CpuExecutor

SWEEP = """
import torch
from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

SHAPES = [(2, 33), (3, 40)]
SAMPLES = [Sample(name=f"{m}x{n}", args={"x": TensorSpec(shape=(m, n))}) for m, n in SHAPES]
SWEEP = [Series(op="softmax", dtypes=(torch.float16,), samples=tuple(SAMPLES))]
"""
KEY = "m=4 n=40 itemsize=2 chunked=None"


@pytest.fixture(autouse=True)
def clock(tmp_path, monkeypatch):
    """One tiny case of softmax; a call takes as many milliseconds as are here for its occupancy, or else 2000."""
    op = tilegym.ops.softmax
    samples = [Sample(name="4x40", args={"x": TensorSpec(shape=(4, 40))})]
    monkeypatch.setattr(op, "contract", replace(op.contract, benchmarks=lambda: samples))
    monkeypatch.setenv("TILEGYM_CACHE_DIR", str(tmp_path / "cache"))
    config.reload()
    times = {}

    def timing(context):
        with context:
            answer = next(iter(tuning._forced.values()), None)
        median = times.get(answer and answer.hints.occupancy, 2000.0)
        return Timing(median=median, low=median, high=median)

    def time_in_turns(groups, device, *, around, **_):
        return {name: timing(around(name)) for name in groups}

    monkeypatch.setattr(suite, "time_in_turns", time_in_turns)
    app._add_commands_of_plugins()
    yield times
    tuning.reread()


def tune(*arguments):
    return CliRunner().invoke(app.app, ["tune", "softmax", "--device", "cpu", *map(str, arguments)])


def test_what_is_better_is_shown_and_written_and_nothing_is_kept_of_an_interpreters(clock, tmp_path):
    clock[4] = 1500.0
    done = tune("--out", tmp_path / "table.json", "--limit", 8)
    assert done.exit_code == 0, done.output
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("softmax"))
    assert row[:7] == ["softmax", "4x40", "bfloat16", "forward", "softmax", row[5], "2000"]
    assert row[7:] == ["1500", "occupancy=4", "num_worker_warps=4"]
    assert (
        f"softmax 4x40 bfloat16 forward: softmax {KEY}: 2000 ms, 1500 ms with occupancy=4 num_worker_warps=4; "
        in done.stderr
    )
    assert "kernels were interpreted, which says nothing of any GPU: nothing was kept" in done.stdout
    table = tables.read(tmp_path / "table.json")
    assert (table.device, table.arch) == ("cutile-cpu", "sm_90")
    assert table.functions["softmax"][KEY]["hints"]["occupancy"] == 4
    assert cache.directory(make=False) is None
    assert kernels.heuristic(4, 40, 2, CpuExecutor.target).hints.occupancy is None


def test_on_a_gpu_it_would_be_kept(clock, monkeypatch):
    """A faster one is; and where something else was kept before, so is the heuristic's own, once it wins."""
    clock[4] = 1500.0
    monkeypatch.setattr(tune_command, "_times_mean_something", lambda device: True)
    assert f"what is better is kept in {config.settings().cache_dir}" in tune("--limit", 8, "--jobs", 0).stdout
    assert kernels.heuristic(4, 40, 2, CpuExecutor.target).hints.occupancy == 4
    clock[4] = 2500.0
    tune("--limit", 8, "--jobs", 0)
    assert kernels.heuristic(4, 40, 2, CpuExecutor.target).hints.occupancy is None
    assert len(cache.entries("tuning-softmax")) == 1


def test_shapes_json_and_limit(clock):
    done = tune("--shapes", "2x33,3x40", "--dtype", "bf16,float32", "--limit", 1, "--json", "--backward")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [(row["case"], row["dtype"], row["way"], row["key"], row["tried"]) for row in report["found"]] == [
        ("2x33", "bfloat16", "forward", "m=2 n=33 itemsize=2 chunked=None", 1),
        ("2x33", "bfloat16", "backward", "m=2 n=33 itemsize=2", 1),
        ("3x40", "bfloat16", "forward", KEY, 1),
        ("3x40", "bfloat16", "backward", "m=4 n=40 itemsize=2", 1),
        ("2x33", "float32", "forward", "m=2 n=33 itemsize=4 chunked=None", 1),
        ("2x33", "float32", "backward", "m=2 n=33 itemsize=4", 1),
        ("3x40", "float32", "forward", "m=4 n=40 itemsize=4 chunked=None", 1),
        ("3x40", "float32", "backward", "m=4 n=40 itemsize=4", 1),
    ]
    first = report["found"][0]
    assert (first["heuristic_ms"], first["best_ms"], first["better"], first["failed"]) == (2000.0, 2000.0, "", {})
    assert first["config"]["columns"] == 64


def test_cases_of_a_sweep_until_time_is_over(clock, tmp_path):
    """Those that the file has, in its dtypes; what did not have its turn is told."""
    sweep = tmp_path / "sweep.py"
    sweep.write_text(SWEEP)
    clock[4] = 1500.0
    done = tune("--sweep", sweep, "--json", "--limit", 8)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [(row["case"], row["dtype"]) for row in report["found"]] == [("2x33", "float16"), ("3x40", "float16")]
    [best, *others] = report["found"][0]["ratios"]
    assert best == {"config": "occupancy=4 num_worker_warps=4", "ratio": 0.75}
    assert [one["ratio"] for one in others] == [0.75] + [1.0] * 6
    report = json.loads(tune("--sweep", sweep, "--json", "--limit", 1, "--seconds", 0).stdout)
    assert [row["case"] for row in report["found"]] == ["2x33"]
    assert report["left_out"] == {"the rest": "the 0 s of this run were over"}
    assert "leave out --shapes" in tune("--sweep", sweep, "--shapes", "2x2").output


def test_an_op_without_tuned_functions_is_told(monkeypatch):
    tilegym.register_impl("softmax", "cutile-cpu")(lambda x: torch.softmax(x.float(), -1).to(x.dtype))
    done = tune("--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["found"] == report["failed"] == []
    assert report["left_out"]["softmax"].startswith("it asks no tuned function")


def test_what_was_found_before_an_interrupt_is_kept(clock, tmp_path, monkeypatch):
    def cut_short(*arguments, **options):
        yield next(whole(*arguments, **options))
        raise KeyboardInterrupt

    whole = search.search
    monkeypatch.setattr(search, "search", cut_short)
    clock[4] = 1500.0
    done = tune("--out", tmp_path / "table.json", "--shapes", "4x40,8x40")
    assert done.exit_code == 130
    assert "4x40" in done.stdout
    assert "the rest: this run was interrupted" in done.stdout
    assert [*tables.read(tmp_path / "table.json").functions["softmax"]] == [KEY]


def test_what_was_found_is_shown_where_the_table_cannot_be_written_any_more(clock, tmp_path, monkeypatch):
    def no_space(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    clock[4] = 1500.0
    table = tmp_path / "table.json"
    monkeypatch.setattr(tables, "write", no_space)
    done = tune("--out", table, "--shapes", "4x40,8x40", "--json")
    assert str(done.exception) == f"{table} cannot be written: No space left on device"
    report = json.loads(done.stdout)
    assert [(row["case"], row["better"]) for row in report["found"]] == [("4x40", "occupancy=4 num_worker_warps=4")]
    assert report["left_out"] == {"the rest": str(done.exception)}


def test_an_op_that_fails_as_it_is_is_told(monkeypatch):
    tilegym.register_impl("softmax", "cutile-cpu")(lambda x: x)
    done = tune()
    assert done.exit_code == 1
    assert "softmax 4x40 bfloat16 forward: wrong: output: norm error" in done.stdout


def test_what_cannot_be_done_is_told_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "search", lambda *_: pytest.fail("nothing must be tried"))
    (tmp_path / "table.json").write_text("{")
    assert isinstance(tune("--out", tmp_path / "table.json").exception, RecordError)
    assert isinstance(tune("--out", tmp_path / "table.json" / "deeper").exception, ResultsError)
    assert "expected sizes joined by x" in tune("--shapes", "4xy").output
    assert "none is compiled: leave out --jobs" in " ".join(tune("--jobs", 1).output.replace("│", " ").split())
    other = tables.Table(device="NVIDIA H200", arch="sm_90", versions={}, functions={})
    tables.write(other, tmp_path / "other.json")
    monkeypatch.setattr(tune_command, "_times_mean_something", lambda device: True)
    backend.install()
    refused = tune("--jobs", 0, "--out", tmp_path / "other.json").exception
    assert isinstance(refused, RecordError)
    assert "is the table of NVIDIA H200, not of cutile-cpu: give another file" in str(refused)
    assert CliRunner().invoke(app.app, ["tune", "--device", "cpu", "--shapes", "4x4"]).exit_code == 2
