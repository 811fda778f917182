"""`tilegym bench`: files, plots, comparisons and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

import tilegym
from _tilegym_cli.app import app
from tilegym.benchmarking import machine, suite
from tilegym.benchmarking.compare import compare
from tilegym.benchmarking.plots import plot
from tilegym.benchmarking.results import Ceilings, Clocks, Device, read, write
from tilegym.benchmarking.timing import Timing
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import BenchmarkError, ResultsError


@pytest.fixture(autouse=True)
def _quick_clock(monkeypatch):
    """Two tiny cases of softmax, 2 ms a call, and ceilings that nobody measures."""
    op = tilegym.ops.softmax
    samples = [Sample(name=f"{rows}x8", args={"x": TensorSpec(shape=(rows, 8))}) for rows in (4, 16)]
    monkeypatch.setattr(op, "contract", replace(op.contract, benchmarks=lambda: samples))
    timing = Timing(median=2.0, low=1.5, high=3.0)
    monkeypatch.setattr(suite, "time_in_turns", lambda calls, *_, **__: dict.fromkeys(calls, timing))
    ceilings = Ceilings(copy_gbps=4.0, matmul_tflops={"bfloat16": 1.0})
    monkeypatch.setattr("tilegym.benchmarking.ceilings.measure_ceilings", lambda *_: ceilings)
    tilegym.register_impl("softmax", "mine")(lambda x: torch.softmax(x, -1))


def bench(*arguments):
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_a_run_shows_a_table_and_writes_what_it_shows(tmp_path):
    file = tmp_path / "out" / "run.json"
    done = bench("softmax", "--device", "cpu", "--json", file)
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("softmax")]
    rate = 128 / 2e-3 / 1e9
    assert lines[0] == [
        *("softmax", "4x8", "bfloat16", "forward", "mine", "2", "1.5-3", f"{rate:.4g}", "GB/s", f"{rate / 0.04:.1f}")
    ]
    found = read(file)
    assert [(row.case, row.rate) for row in found.rows] == [("4x8", pytest.approx(rate)), ("16x8", 4 * rate)]
    assert found.device.type == "cpu"
    assert found.versions["torch"] == torch.__version__
    assert found.versions["tilegym-core"] == tilegym.__version__
    assert bench("run", "softmax", "--device", "cpu").stdout + f"wrote {file}\n" == done.stdout


def test_a_wrong_answer_fails_the_run_and_a_peers_does_not(site, tmp_path):
    site.backend("theirs", "auto=False, peer=True", ops={"softmax": "return x"})
    done = bench("softmax", "--device", "cpu", "--json", tmp_path / "peer.json")
    assert done.exit_code == 0, done.output
    assert "softmax 4x8 bfloat16 forward theirs: wrong: output: norm error" in done.stdout
    tilegym.register_impl("softmax", "mine")(lambda x: x)
    done = bench("softmax", "--device", "cpu", "--json", tmp_path / "ours.json")
    assert done.exit_code == 1
    assert [row.median_ms for row in read(tmp_path / "ours.json").rows] == [None] * 4


def test_results_lie_by_device_and_date(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    device = Device(
        name="NVIDIA H200 (141 GB)",
        type="cpu",
        arch=None,
        num_sms=None,
        memory_bytes=None,
        driver=None,
        clocks_mhz=None,
    )
    monkeypatch.setattr(machine, "describe_device", lambda _: device)
    done = bench("softmax", "--quick", "--device", "cpu", "--results", tmp_path / "results")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "results" / "nvidia-h200-141-gb"
    (file,) = folder.glob("*.json")
    found = read(file)
    assert file.name == found.date[:19].replace(":", "") + "-quick.json"
    plots = [path.name for path in (folder / file.stem).iterdir()]
    assert plots == ["softmax-bfloat16-forward-GBps.png"]
    assert (folder / file.stem / plots[0]).read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_written_or_drawn_is_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("here already")
    monkeypatch.setattr("tilegym.benchmarking.suite.run", lambda *_: pytest.fail("nothing must be timed"))
    done = bench("softmax", "--device", "cpu", "--json", tmp_path / "file" / "run.json")
    assert isinstance(done.exception, ResultsError)
    assert str(tmp_path / "file" / "run.json") in str(done.exception)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench("softmax", "--device", "cpu", "--plot", tmp_path)
    assert isinstance(done.exception, BenchmarkError)


def test_a_run_that_is_cut_short_leaves_what_it_measured(tmp_path, monkeypatch):
    def cut_short(*arguments):
        yield next(suite_run(*arguments))
        raise KeyboardInterrupt

    suite_run = suite.run
    monkeypatch.setattr(suite, "run", cut_short)
    assert bench("softmax", "--device", "cpu", "--json", tmp_path / "run.json").exit_code != 0
    assert [row.case for row in read(tmp_path / "run.json").rows] == ["4x8"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmx",), "Did you mean 'softmax'"),
        (("softmax", "--backends", "mine,yours"), "no installed distribution provides a backend 'yours'"),
        (("softmax", "--dtype", "float64"), "takes bfloat16, float16, float32, not float64"),
        (("softmax", "--dtype", "bf17"), "expected a dtype of torch"),
        (("silu_and_mul",), "there is nothing to time on cpu"),
        (("softmax", "--graph"), "CUDA graphs"),
        (("softmax", "--json", "/"), "results cannot be written to /: it is a folder or a device"),
    ],
)
def test_what_cannot_be_timed_is_a_message(arguments, message, monkeypatch):
    monkeypatch.undo()
    tilegym.register_impl("softmax", "mine")(lambda x: torch.softmax(x, -1))
    done = bench(*arguments, "--device", "cpu")
    assert done.exit_code != 0
    assert message in " ".join(f"{done.output} {done.exception}".replace("│", " ").split())


def test_without_names_all_ops_are_timed_on_all_backends():
    done = bench("--device", "cpu", "--quick")
    assert done.exit_code == 0, done.output
    assert {line.split()[0] for line in done.stdout.splitlines() if " forward " in line} == {"softmax"}


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from typer.testing import CliRunner; from _tilegym_cli.app import app; "
        "done = CliRunner().invoke(app, ['bench', '--help']); print(done.exit_code, 'compare' in done.stdout, "
        "'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split() == ["0", "True", "False"]


# -- sweeps -----------------------------------------------------------------------------------------------------------

SWEEP = """
import torch
from tilegym.benchmarking.sweep import Series
from tilegym.contract import Sample, TensorSpec

def series(op, name, *dtypes):
    samples = [Sample(name=f"{m}x8", args={name: TensorSpec(shape=(m, 8))}) for m in (32, 64)]
    return Series(op=op, dtypes=dtypes, samples=tuple(samples), graph=True)

SWEEP = [series("softmax", "x", torch.bfloat16, torch.float32), series("relu", "x", torch.float32)]
"""


@pytest.fixture
def sweep(tmp_path):
    """A file with cases of softmax in two dtypes and of relu in one."""
    tilegym.register_impl("relu", "mine")(lambda x: x.relu())
    file = tmp_path / "few.py"
    file.write_text(SWEEP)
    return file


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["softmax bfloat16", "softmax float32", "relu float32"]),
        (("relu",), ["relu float32"]),
        (("--dtype", "bf16,fp16"), ["softmax bfloat16"]),
    ],
)
def test_a_sweep_is_timed_in_its_own_dtypes(sweep, tmp_path, options, expected):
    done = bench(*options, "--sweep", sweep, "--device", "cpu", "--json", tmp_path / "run.json")
    assert done.exit_code == 0, done.output
    rows = read(tmp_path / "run.json").rows
    assert [(f"{row.op} {row.dtype}", row.case) for row in rows] == [
        (name, case) for name in expected for case in ("32x8", "64x8")
    ]
    assert [(row.error, row.graph) for row in rows] == [(None, False)] * len(rows)  # a CPU has no graphs


def test_an_op_that_a_sweep_does_not_have_is_a_message(sweep):
    done = bench("relu", "softmx", "--sweep", sweep, "--device", "cpu")
    assert isinstance(done.exception, BenchmarkError)
    assert str(done.exception) == "the sweep has no cases of softmx, but of relu, softmax"


def test_results_of_a_sweep_have_its_name(sweep, tmp_path):
    pytest.importorskip("matplotlib")
    done = bench("--sweep", sweep, "--device", "cpu", "--results", tmp_path / "results")
    assert done.exit_code == 0, done.output
    (file,) = (tmp_path / "results").rglob("*.json")
    assert file.name == read(file).date[:19].replace(":", "") + "-few.json"


def test_a_run_may_be_bounded(sweep, tmp_path):
    assert bench("--sweep", sweep, "--device", "cpu", "--seconds", "0", "--json", tmp_path / "run.json").exit_code == 0
    errors = [row.error for row in read(tmp_path / "run.json").rows]
    assert errors == ["not run: the 0 s of this run were over"] * 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: FileNotFoundError"),
        ("1 / 0", "cannot be read: ZeroDivisionError: division by zero"),
        ("SWEEPS = []", "expected SWEEP, a sequence of tilegym.benchmarking.sweep.Series"),
        ("SWEEP = ['softmax']", "expected SWEEP, a sequence of tilegym.benchmarking.sweep.Series"),
        ("raise SystemExit", "cannot be read: SystemExit"),
        pytest.param(
            SWEEP.replace("dtypes=dtypes", "dtypes=torch.half"),
            "TypeError: dtypes of the series of softmax: expected a tuple of dtype, got torch.float16",
            id="a dtype",
        ),
        pytest.param(
            SWEEP.replace("tuple(samples)", "('32x8',)"),
            "TypeError: samples of the series of softmax: expected a tuple of Sample, got ('32x8',)",
            id="names",
        ),
    ],
)
def test_a_file_that_is_no_sweep_is_a_message(tmp_path, text, message):
    file = tmp_path / "none.py"
    if text is not None:
        file.write_text(text)
    done = bench("--sweep", file, "--device", "cpu")
    assert isinstance(done.exception, BenchmarkError)
    assert f"sweep {file}" in str(done.exception)
    assert message in str(done.exception)


def test_a_case_whose_arguments_are_not_the_ops_is_a_message(sweep):
    sweep.write_text(SWEEP.replace('series("relu", "x"', 'series("relu", "y"'))
    done = bench("--sweep", sweep, "--device", "cpu")
    assert isinstance(done.exception, BenchmarkError)
    assert str(done.exception) == "case 32x8 of relu: missing a required argument: 'x'"


def test_kernels_are_compiled_before_the_first_call_if_so_wanted(site, tmp_path):
    """Of the calls that the backend takes part in, by the backend itself."""
    log = f"__import__('pathlib').Path({str(tmp_path / 'log')!r})"
    told = "f'{len(calls)} calls on {device}, {jobs} jobs'"
    ahead = f"lambda calls, device, jobs: {log}.write_text({told})"
    site.backend("ours", f"compile_ahead={ahead}", ops={"softmax": f"return {log}.exists() and x.softmax(-1)"})
    command = ("softmax", "--device", "cpu", "--backends", "ours,mine")
    assert bench(*command).exit_code == 1  # nothing was compiled
    assert bench(*command, "--jobs", "3").exit_code == 0
    assert (tmp_path / "log").read_text() == "2 calls on cpu, 3 jobs"


def test_ratios_to_peers_are_shown(site, monkeypatch):
    site.backend("theirs", "auto=False, peer=True", ops={"softmax": "return x.softmax(-1)"})
    milliseconds = {("mine", 0): 2.0, ("theirs", 0): 1.0, ("mine", 1): 2.0, ("theirs", 1): 8.0}
    cases = iter(range(2))

    def time_in_turns(groups, *_, **__):
        case = next(cases)
        return {name: Timing(median=milliseconds[name, case], low=1.0, high=9.0) for name in groups}

    monkeypatch.setattr(suite, "time_in_turns", time_in_turns)
    done = bench("softmax", "--device", "cpu")
    shown = done.stdout.partition("Beside peers: their time / the backend's; the backend's error / theirs")[2].split()
    assert shown[-10:] == ["softmax", "bfloat16", "forward", "mine", "theirs", "2", "1.414", "0.500", "4x8", "1.000"]


# -- comparing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def before(tmp_path):
    """A run of softmax in a file."""
    file = tmp_path / "before.json"
    assert bench("softmax", "--device", "cpu", "--json", file).exit_code == 0
    return file


def changed(before, **rows_to_fields):
    """A file beside it, with fields of its first row changed."""
    found = read(before)
    first, *others = found.rows
    after = before.with_name("after.json")
    write(replace(found, rows=(replace(first, **rows_to_fields), *others)), after)
    return after


@pytest.mark.parametrize(
    ("milliseconds", "threshold", "ratio", "code"),
    [(2.0, "0.05", "1.000", 0), (2.09, "0.05", "1.045", 0), (2.11, "0.05", "1.055", 1), (2.11, "0.06", "1.055", 0)],
)
def test_compare_fails_past_the_threshold(before, milliseconds, threshold, ratio, code):
    done = bench("compare", before, changed(before, median_ms=milliseconds), "--threshold", threshold)
    assert done.exit_code == code, done.output
    row = next(line.split() for line in done.stdout.splitlines() if "4x8" in line)
    assert row[-4:] == ["2", f"{milliseconds:g}", ratio, "yes" if code else "no"]


def test_a_timing_that_was_lost_is_past_any_threshold(before):
    after = changed(before, median_ms=None, low_ms=None, high_ms=None, error="wrong: nan")
    assert bench("compare", before, after, "--threshold", "9").exit_code == 1
    assert bench("compare", after, before).exit_code == 0


def test_compare_tells_what_is_in_one_run_alone(before):
    done = bench("compare", before, changed(before, backend="other"))
    assert done.exit_code == 0
    assert f"Only in {before}\n  softmax 4x8 bfloat16 forward mine: 2 ms" in done.stdout
    assert "softmax 4x8 bfloat16 forward other: 2 ms" in done.stdout
    assert "Geometric mean of the ratios: 1.000" in done.stdout


def test_geometric_mean_is_of_what_both_timed(before):
    found = read(before)
    fast, lost = replace(found.rows[0], median_ms=0.5), replace(found.rows[1], median_ms=None, error="failed")
    compared = compare(found, replace(found, rows=(fast, lost)))
    assert [change.ratio for change in compared.changes] == [0.25, float("inf")]
    assert compared.geometric_mean == pytest.approx(0.25)


def test_unlike_devices_and_broken_files_are_refused(before):
    found = read(before)
    other = before.with_name("other.json")
    write(replace(found, device=replace(found.device, name="NVIDIA H200", type="cuda")), other)
    done = bench("compare", before, other)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "runs on unlike devices cannot be compared: " in done.stderr
    assert "NVIDIA H200 (cuda)" in done.stderr
    other.write_text(json.dumps({"schema": 1}))
    done = bench("compare", before, other)
    assert done.exit_code == 2
    assert f"{other}: fields missing or unknown: ceilings, commit, date, device, rows, versions" in done.stderr


# -- plots and facts --------------------------------------------------------------------------------------------------


def test_plots_need_matplotlib(before, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(BenchmarkError, match="plots need matplotlib: python3 -m pip install matplotlib"):
        plot(read(before), tmp_path / "plots")


def test_a_plot_for_each_op_dtype_and_direction(before, tmp_path):
    pytest.importorskip("matplotlib")
    found = read(before)
    row, other = found.rows
    rows = (
        *(row, other, replace(row, backend="peer", peer=True, median_ms=900.0, high_ms=990.0)),
        replace(row, dtype="float32", direction="backward"),
        replace(row, op="matmul", unit="TFLOP/s", flops=10**9, intensity=500.0),
        replace(row, op="untimed", median_ms=None, error="wrong"),
    )
    written = plot(replace(found, rows=rows), tmp_path / "plots")
    assert [path.name for path in written] == [
        "softmax-bfloat16-forward-GBps.png",
        "softmax-float32-backward-GBps.png",
        "matmul-bfloat16-forward-TFLOPS.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    with pytest.raises(BenchmarkError, match=f"plots cannot be written to {written[0]}"):
        plot(found, written[0])


@pytest.mark.parametrize(
    ("answer", "driver", "clocks"),
    [
        ("580.65.06, 1980, 3201", "580.65.06", Clocks(sm=1980.0, memory=3201.0)),
        ("580.65.06, [N/A], 3201", None, None),
        ("", None, None),
    ],
)
def test_a_gpu_is_described_as_found(monkeypatch, answer, driver, clocks):
    class Properties:
        name, uuid, major, minor, multi_processor_count, total_memory = "NVIDIA H200", "8a-b", 9, 0, 132, 150 * 10**9

    asked = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    monkeypatch.setattr(machine, "_output", lambda command: asked.append(command) or answer)
    found = machine.describe_device(torch.device("cuda"))
    assert (found.name, found.type, found.arch, found.num_sms) == ("NVIDIA H200", "cuda", "sm_90", 132)
    assert (found.memory_bytes, found.driver, found.clocks_mhz) == (150 * 10**9, driver, clocks)
    assert asked[0][-1] == "--id=GPU-8a-b"


def test_commit_is_that_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert machine.commit() is None

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *arguments], check=True)  # noqa: S607 - the one on PATH

    git("init", "-q")
    git("commit", "-qm", "m", "--allow-empty")
    found = machine.commit()
    assert len(found) == 40
    (tmp_path / "file").touch()
    git("add", "file")
    assert machine.commit() == f"{found}-dirty"
