"""A GPU test that does not run never looks green where one was asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch


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
