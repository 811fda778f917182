"""The command line: what each command reports, as tables and as JSON, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

import tilegym
from _tilegym_cli.app import app

SOFTMAX = "return torch.softmax(x, dim=-1)"
NO_DRIVER = "probe=lambda device: 'no driver'"


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def report(*arguments, exit_code=0):
    """The JSON that a command prints."""
    done = run(*arguments, "--json")
    assert done.exit_code == exit_code, done.output
    return json.loads(done.stdout, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


def python_m_tilegym(*arguments, **variables):
    """The command in a process of its own, its output piped."""
    command = [sys.executable, "-m", "tilegym", *arguments]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", [("demo",), ("backends",), ("ops",), ("explain", "softmax"), ("doctor",)])
def test_json_is_all_that_is_printed_whatever_a_plugin_prints(site, command):
    site.backend("chatty", ops={"softmax": SOFTMAX}, declarations="print('hello from the plugin')")
    done = run(*command, "--json")
    assert done.exit_code == 0, done.output
    assert isinstance(json.loads(done.stdout), dict)
    assert "hello from the plugin" in done.stderr


@pytest.mark.parametrize("command", ["ops", "backends", "doctor"])
def test_closed_output_is_no_crash(command):
    closed = (
        f"import runpy, sys; sys.stdout = None; sys.argv = ['tilegym', {command!r}]; "
        "runpy.run_module('tilegym', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", closed], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_console_script_and_module_are_one_command():
    (script,) = metadata.entry_points(group="console_scripts", name="tilegym")
    assert script.value == "_tilegym_cli:main"
    done = python_m_tilegym("--version")
    assert (done.returncode, done.stdout) == (0, f"tilegym {tilegym.__version__}\n")


def test_backends_tells_each_ones_place_and_reason(site):
    site.backend("low", "priority=-5, aliases=('lower',), auto=False")
    site.backend("high", f"priority=9, device_types=('cuda',), {NO_DRIVER}")
    high, low = report("backends")["backends"]
    assert high == {
        "name": "high",
        "aliases": [],
        "distribution": "high-dist",
        "version": "1.0",
        "device_types": ["cuda"],
        "priority": 9,
        "auto": True,
        "usable": False,
        "reason": "no driver",
    }
    assert (low["name"], low["aliases"], low["auto"], low["usable"], low["reason"]) == (
        "low",
        ["lower"],
        False,
        True,
        None,
    )
    shown = run("backends").stdout
    assert "high: no driver" in shown
    assert "lower" in shown


def test_a_backend_made_up_by_a_script_belongs_to_no_distribution():
    tilegym.register_impl("softmax", backend="inline")(lambda x: x)
    (row,) = report("backends")["backends"]
    assert (row["name"], row["distribution"], row["auto"]) == ("inline", None, False)
    assert run("backends").exit_code == 0


def test_ops_is_a_matrix_of_ops_and_backends(site):
    site.backend("one", ops={"softmax": SOFTMAX})
    told = report("ops")
    rows = {row["name"]: row for row in told["ops"]}
    assert told["backends"] == ["one"]
    assert rows["softmax"]["implemented_by"] == ["one"]
    assert rows["rms_norm"]["implemented_by"] == []
    assert rows["softmax"]["dtypes"] == ["float32", "float16", "bfloat16"]
    assert rows["softmax"]["summary"] == "Softmax over the last dimension: `torch.softmax(x, dim=-1)`."
    assert "rms_norm" in run("ops").stdout


def test_ops_tells_of_a_contract_that_does_not_load(site):
    pack = "@hookimpl\ndef tilegym_op_packs():\n    return [OpPack(name='extra', package='extra_dist.specs')]\n"
    site.install("extra-dist", pack, {"specs/broken.py": "raise OSError('no such file')"})
    rows = {row["name"]: row for row in report("ops")["ops"]}
    assert rows["extra.broken"]["error"] == "OSError: no such file"
    assert rows["softmax"]["error"] is None
    assert "extra.broken: OSError: no such file" in run("ops").stdout


@pytest.mark.parametrize("command", ["backends", "ops", "doctor"])
def test_without_a_backend_the_listings_say_so(command):
    done = run(command)
    assert done.exit_code == 0, done.output
    assert "No backend is" in done.stdout


def test_demo_without_a_backend_fails_and_says_how_to_get_one(monkeypatch):
    told = report("demo", exit_code=1)
    assert (told["ok"], told["rows"], told["next"]) == (False, [], "tilegym doctor")
    monkeypatch.setattr("importlib_metadata.entry_points", lambda **_: [])
    tilegym.config.reload()
    told = report("demo", exit_code=1)
    assert told["problem"].startswith("No backend is installed.")
    assert "python3 -m pip install ./tilegym-torchref" in told["problem"]


def test_demo_measures_what_runs_and_says_why_the_rest_does_not(site):
    site.backend("good", "device_types=('cpu',)", {"softmax": SOFTMAX})
    site.backend("absent", f"priority=9, {NO_DRIVER}", {"softmax": SOFTMAX})
    told = report("demo")
    rows = {(row["backend"], row["op"]): row for row in told["rows"]}
    assert list(rows) == [(b, op) for b in ("absent", "good") for op in ("rms_norm", "silu_and_mul", "softmax")]
    assert {rows["absent", op]["reason"] for op in ("rms_norm", "silu_and_mul", "softmax")} == {"no driver"}
    missing = rows["good", "rms_norm"]
    assert (missing["status"], missing["device"]) == ("not run", None)
    assert "has no implementation" in missing["reason"]
    right = rows["good", "softmax"]
    assert (right["status"], right["device"], right["reason"]) == ("right", "cpu", None)
    assert 0 < right["norm_error"] <= right["norm_bound"] == 8e-3
    assert 0 < right["element_ratio"] <= 1
    assert right["milliseconds"] > 0
    assert told["next"] == "tilegym doctor"


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("return torch.softmax(x, dim=-1) * 1.1", "wrong", "norm error 0.1"),
        ("return x * torch.nan", "wrong", "inf of its bound"),
        ("raise OSError('out of luck')", "failed", "OSError: out of luck"),
        ("raise SystemExit(3)", "failed", "SystemExit: 3"),
        ("return torch.softmax(x.float(), dim=-1)", "failed", "expected a tensor of torch.bfloat16, got torch.float32"),
        ("return None", "failed", "expected a tensor of torch.bfloat16, got NoneType"),
    ],
)
def test_demo_fails_if_a_backend_that_runs_is_not_right(site, body, status, reason):
    site.backend("good", "device_types=('cpu',)", {"softmax": SOFTMAX})
    site.backend("bad", "device_types=('cpu',)", {"softmax": body})
    told = report("demo", exit_code=1)
    (row,) = [row for row in told["rows"] if (row["backend"], row["op"]) == ("bad", "softmax")]
    assert row["status"] == status
    assert reason in row["reason"]
    assert not told["ok"]


def test_demo_with_only_unusable_backends_fails(site):
    site.backend("absent", NO_DRIVER, {"softmax": SOFTMAX})
    done = run("demo")
    assert done.exit_code == 1
    assert "absent: no driver" in done.stdout
    assert "No installed backend can run here." in done.stdout
    assert "Next: tilegym doctor" in done.stdout


def test_a_pipe_gets_whole_lines_without_colour(site):
    reason = "word " * 60 + "end."
    site.backend("absent", f"probe=lambda device: {reason!r}", {"softmax": SOFTMAX})
    done = python_m_tilegym("backends", COLUMNS="40", PYTHONPATH=str(site.path))
    assert done.returncode == 0, done.stderr
    assert f"absent: {reason}" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_bad_setting_is_a_message_and_no_traceback():
    done = python_m_tilegym("backends", TILEGYM_FALLBACK="wran")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "tilegym: environment variable TILEGYM_FALLBACK: got 'wran', expected one of warn, error, silent. "
        "Did you mean 'warn'?\n"
    )


def test_doctor_reports_what_stops_every_other_command(site):
    site.install("bad-dist", "raise OSError('disk full')")
    done = python_m_tilegym("doctor", "--json", TILEGYM_FALLBACK="wran", TILEGYM_STRICT="1", PYTHONPATH=str(site.path))
    assert done.returncode == 1
    setting, plugin = json.loads(done.stdout)["problems"]
    assert "TILEGYM_FALLBACK: got 'wran'" in setting
    assert "bad-dist" in plugin


def test_a_plugin_adds_commands(site):
    commands = "@hookimpl\ndef tilegym_commands():\n    return [Command(name='greet', target='{}_dist.cli:greet')]\n"
    header = "from tilegym.hookspecs import Command, hookimpl\nTILEGYM_API = 1\n"
    greet = "import typer\n\ndef greet(name: str):\n    typer.echo(f'hello {name}')\n"
    site.install("good-dist", commands.format("good"), {"cli.py": greet}, header=header)
    site.install("bad-dist", commands.format("bad").replace("greet'", "absent'"), header=header)
    done = python_m_tilegym("greet", "you", PYTHONPATH=str(site.path))
    assert (done.returncode, done.stdout) == (0, "hello you\n")
    assert done.stderr == (
        "tilegym: no command 'absent': plugin 'bad-dist' (bad_dist.plugin) of distribution bad-dist 1.0: "
        "ModuleNotFoundError: No module named 'bad_dist.cli'\n"
    )
