"""Installed as wheels, away from the tree: what a user's environment does, and what a stranger's distribution adds."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch

from tests.packaging.conftest import EXAMPLE

ERRORS = """
import json, torch, tilegym
def raised(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


def test_first_line_of_the_readme(environment):
    printed = environment.output("import torch, tilegym; print(tilegym.ops.softmax(torch.randn(4,1000)).sum(-1))")
    (numbers,) = re.fullmatch(r"tensor\(\[(.*)\]\)", printed).groups()
    assert [float(one) for one in numbers.split(", ")] == [1.0] * 4  # "1.0000", or "1." if all are so to the last bit


def test_importing_and_listing_load_neither_torch_nor_a_kernel(environment):
    loaded = environment.output(
        """
import sys
import tilegym
def loaded():
    return sorted({name.partition(".")[0] for name in sys.modules} & {
        "cuda", "numpy", "rich", "tilegym_cutile", "tilegym_cutile_cpu", "tilegym_torchref", "torch", "typer"})
print(loaded())
assert "softmax" in dir(tilegym.ops)
print(loaded())
"""
    )
    assert loaded.splitlines() == ["[]", "['tilegym_cutile', 'tilegym_cutile_cpu', 'tilegym_torchref']"]


def test_a_backend_that_cannot_run_says_why(environment):
    name, message = json.loads(
        environment.output(
            ERRORS + "print(json.dumps(raised(lambda: tilegym.ops.softmax(torch.ones(2, 3), backend='cutile'))))"
        )
    )
    assert name == "BackendUnavailableError"
    assert message.startswith("softmax: backend 'cutile' cannot run here: it takes cuda tensors, got cpu")
    if not torch.cuda.is_available():
        assert re.search(r"\(and here: .*(built without CUDA|no NVIDIA GPU|not installed).*\)", message)


@pytest.mark.usefixtures("example")
def test_the_command_is_installed_and_knows_the_strangers_op(environment):
    done = environment.run("ops", "--json", program="tilegym")
    assert done.returncode == 0, done.stderr
    implemented_by = {op["name"]: op["implemented_by"] for op in json.loads(done.stdout)["ops"]}
    assert implemented_by["softmax"] == ["cutile", "cutile-cpu", "example", "torch"]
    assert implemented_by["example.leaky_square"] == ["example", "torch"]


def test_a_strangers_backend_and_op_come_and_go(environment, example):
    served = json.loads(
        environment.output(
            """
import json, torch, tilegym
x = torch.tensor([[-2.0, 3.0]])
with tilegym.trace() as calls:
    results = [
        tilegym.ops.softmax(x, backend="example"),
        tilegym.ops.softmax(x),
        tilegym.ops.example.leaky_square(x),
        tilegym.ops.example.leaky_square(x, slope=-1.0, backend="pytorch"),
    ]
print(json.dumps([[call.op, call.backend, result.tolist()] for call, result in zip(calls, results)]))
"""
        )
    )
    half = torch.softmax(torch.tensor([[-2.0, 3.0]]), dim=-1)[0].tolist()
    assert served == [
        ["softmax", "example", [pytest.approx(half)]],
        ["softmax", "example", [pytest.approx(half)]],  # of higher priority than torch
        ["example.leaky_square", "example", [pytest.approx([0.4, 9.0])]],
        ["example.leaky_square", "torch", [pytest.approx([-4.0, 9.0])]],
    ]

    environment.uninstall(example)
    source = """
print(json.dumps([
    raised(lambda: tilegym.ops.softmax(torch.ones(2, 3), backend="example")),
    raised(lambda: tilegym.ops.example.leaky_square(torch.ones(2))),
    "example" in dir(tilegym.ops),
]))
"""
    unknown_backend, unknown_op, listed = json.loads(environment.output(ERRORS + source))
    assert unknown_backend[0] == "UnknownBackendError"
    assert unknown_backend[1].startswith("no installed distribution provides a backend 'example'")
    assert unknown_op[0] == "UnknownOpError"
    assert unknown_op[1].startswith("no op named 'example'")
    assert not listed


@pytest.mark.usefixtures("example")
def test_the_strangers_own_tests_pass(environment):
    done = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests"), cwd=EXAMPLE)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.usefixtures("example")
def test_metadata_left_behind_by_a_removed_package_is_told_and_does_no_harm(environment):
    shutil.rmtree(environment.site / "tilegym_example")
    done = environment.run("-c", "import torch, tilegym; print(tilegym.ops.softmax(torch.zeros(1, 4)).tolist())")
    assert done.stdout.strip() == "[[0.25, 0.25, 0.25, 0.25]]"
    assert (
        "PluginWarning: plugin 'example' (tilegym_example.plugin) of distribution tilegym-example-backend 1.0.0 "
        "was left out: ModuleNotFoundError: No module named 'tilegym_example'"
    ) in done.stderr


def test_an_older_installation_further_down_the_path_is_shadowed(environment, tmp_path):
    older = tmp_path / "older"
    info = older / "tilegym_torchref-0.0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilegym-torchref\nVersion: 0.0.1\n")
    (info / "entry_points.txt").write_text("[tilegym]\ntorchref = gone.plugin\n")
    path_file = environment.site / "older.pth"
    path_file.write_text(f"{older}\n")
    try:
        printed = environment.output("import torch, tilegym; print(tilegym.explain('softmax', torch.ones(2)).chosen)")
    finally:
        path_file.unlink()
    assert printed == "torch"
