"""What the marks of the suite do: a GPU test that does not run never looks green, and turns leave out what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.turns import of_marked, take_turns


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and the test runs")
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ((), 0, "1 skipped"),
        (("--require-gpu",), 1, "--require-gpu: no CUDA device: torch.cuda.is_available() is False"),
    ],
)
def test_a_gpu_test_without_a_gpu(options, code, said):
    one = f"{Path(__file__).parent / 'test_guards.py'}::test_second_device"
    done = subprocess.run([sys.executable, "-m", "pytest", one, *options], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert said in done.stdout


@pytest.mark.turns("one")
@pytest.mark.parametrize("other", ["a", "b", "c"])
@pytest.mark.parametrize("one", [1, 2])
def test_one_of_those_that_take_turns_runs(one, other, request):
    same = [item for item in request.session.items if of_marked(item) == of_marked(request.node)]
    assert same == [request.node] or "slow" in request.config.option.markexpr


@pytest.mark.parametrize(("markexpr", "left"), [("", 3), ("slow or not slow", 6)])
def test_turns_are_told_to_pytest(markexpr, left):
    told = []
    hook = SimpleNamespace(pytest_deselected=lambda *, items: told.extend(items))
    config = SimpleNamespace(option=SimpleNamespace(markexpr=markexpr), hook=hook)
    items = ["a1", "a2", "a3", "b1", "b2", "c"]
    take_turns(config, items, lambda item: None if item == "c" else item[0])
    assert (len(items), len(told)) == (left, 6 - left)
    assert "c" in items
    assert {item[0] for item in items} == {"a", "b", "c"}
