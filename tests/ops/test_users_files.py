"""The files that users bring for an op, a test and a benchmark: run unchanged, and with another device on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tilegym import get_available_backends

ROOT = Path(__file__).parents[2]
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="about a machine without a GPU")

# The templates of "Adding a cuTile Kernel to TileGym", steps 4 and 5, filled in for silu_and_mul.
TEST = '''\
import pytest
import torch

from tilegym.backend import is_backend_available, set_backend
from .. import common

_backends = ["cutile", "torch"]


class Test_SILU_AND_MUL(common.PyTestCase):
    @staticmethod
    def reference(input):
        """Reference implementation using PyTorch."""
        gate, up = input.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate.float()).mul(up.float()).to(input.dtype)

    @pytest.mark.parametrize("shape, dtype", [
        ((1024,), torch.float16),
        ((128, 512), torch.float32),
        ((8, 16, 64), torch.bfloat16),
    ])
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, shape, dtype, backend, arch):
        if backend == "cutile" and not is_backend_available("cutile"):
            pytest.skip("Cutile backend not available")
        try:
            set_backend(backend)
        except Exception as e:
            pytest.skip(f"Backend is not supported: {e}")

        self.setUp()

        from tilegym.ops import silu_and_mul

        A = torch.randn(*shape, dtype=dtype, device="cuda")
        self.assertCorrectness(
            silu_and_mul, self.reference, {"input": A},
            atol=1e-3, rtol=1e-3,
        )
'''
BENCHMARK = '''\
import torch
import triton
import triton.testing

import tilegym
from tilegym.backend import is_backend_available, register_impl

ALL_BACKENDS = [
    ("cutile", "cuTile", ("orange", "-")) if is_backend_available("cutile") else None,
    ("torch", "PyTorch", ("green", "-")),
]

def get_supported_backends():
    return [p for p in ALL_BACKENDS if p is not None]

def reference_silu_and_mul(input: torch.Tensor, out: torch.Tensor = None, **kwargs):
    """Reference implementation using PyTorch."""
    gate, up = input.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up

register_impl("silu_and_mul", "torch")(reference_silu_and_mul)

def create_benchmark_config(datatype, hidden):
    available_backends = get_supported_backends()
    if not available_backends:
        return None
    backends, names, styles = zip(*available_backends)
    return triton.testing.Benchmark(
        x_names=["M"],
        x_vals=[64, 128],
        line_arg="backend",
        line_vals=list(backends),
        line_names=list(names),
        styles=list(styles),
        ylabel="GB/s",
        plot_name=f"silu-and-mul-hidden{hidden}-{str(datatype).split('.')[-1]}-GBps",
        args={"datatype": datatype, "hidden": hidden},
    )

@triton.testing.perf_report([
    create_benchmark_config(datatype, hidden)
    for datatype in [torch.float16, torch.float32]
    for hidden in [256]
])
def bench_silu_and_mul(M, backend, datatype, hidden, device="cuda"):
    x = torch.randn(M, 2 * hidden, dtype=datatype, device=device)

    fn = lambda: tilegym.ops.silu_and_mul(x, backend=backend)
    ref = lambda: reference_silu_and_mul(x)
    torch.testing.assert_close(fn(), ref(), rtol=1e-2, atol=1e-2)

    ms = triton.testing.do_bench(fn)
    return 3 * M * hidden * x.element_size() / ms * 1e-6

if __name__ == "__main__":
    bench_silu_and_mul.run(print_data=True)
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A user's checkout: the packages `tests`, `tests.ops` and `tests.benchmark`, with this repository's settings."""
    for folder in ("tests/ops", "tests/benchmark"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "tests" / "__init__.py").touch()
    for shared in ("pyproject.toml", "tests/common.py", "tests/benchmark/test_benchmarks.py"):
        (tmp_path / shared).write_text((ROOT / shared).read_text())
    return tmp_path


def pytest_in(tree: Path, *arguments: str) -> tuple[int, str]:
    """The exit code and the output of a run there, of this machine's packages and none of this run's settings."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TILEGYM_"))}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--color=no", *arguments]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def outcomes(output: str) -> list[str]:
    return re.findall(r"::\S+.* (PASSED|FAILED|SKIPPED|ERROR)", output)


@no_gpu
def test_test_file_is_skipped_with_the_reason(tree):
    (tree / "tests/ops/test_silu_and_mul.py").write_text(TEST)
    code, output = pytest_in(tree, "tests/ops")
    assert (code, outcomes(output)) == (0, ["SKIPPED"] * 6), output
    assert "SKIPPED [3]" in output
    assert "Cutile backend not available" in output
    assert "no CUDA device: " in output


@pytest.mark.gpu
def test_test_file_runs(tree):
    (tree / "tests/ops/test_silu_and_mul.py").write_text(TEST)
    code, output = pytest_in(tree, "tests/ops")
    assert (code, outcomes(output)) == (0, ["PASSED"] * 6), output


def test_test_file_runs_on_a_cpu(tree):
    on_cpu = TEST.replace('device="cuda"', 'device="cpu"').replace('["cutile", "torch"]', '["cutile-cpu", "torch"]')
    (tree / "tests/ops/test_silu_and_mul.py").write_text(on_cpu)
    code, output = pytest_in(tree, "tests/ops")
    ran = [backend for backend in ("cutile-cpu", "torch") if backend in get_available_backends()]
    assert (code, sorted(outcomes(output))) == (0, ["PASSED"] * 3 * len(ran) + ["SKIPPED"] * 3 * (2 - len(ran))), output
    wrong = on_cpu.replace(".mul(up.float())", ".mul(up.float() + 0.1)")
    (tree / "tests/ops/test_silu_and_mul.py").write_text(wrong)
    code, output = pytest_in(tree, "tests/ops", "-k", "torch")
    assert (code, outcomes(output)) == (1, ["FAILED"] * 3), output


def test_what_a_test_chose_and_registered_is_undone(tree):
    (tree / "tests/ops/test_twice.py").write_text(
        """\
import pytest
import tilegym
from .. import common

class Test_TWICE(common.PyTestCase):
    @pytest.mark.parametrize("time", ["first", "second"])
    def test_choice(self, time):
        assert not tilegym.has_backend_impl("softmax", "mine")
        assert tilegym.get_current_backend() == "auto"
        tilegym.register_impl("softmax", "mine")(lambda x: x)
        tilegym.set_backend("mine")
"""
    )
    code, output = pytest_in(tree, "tests/ops")
    assert (code, outcomes(output)) == (0, ["PASSED"] * 2), output


@no_gpu
def test_benchmark_file_is_skipped_with_the_reason(tree):
    (tree / "tests/benchmark/bench_silu_and_mul.py").write_text(BENCHMARK)
    code, output = pytest_in(tree, "tests/benchmark")
    assert (code, outcomes(output)) == (0, ["SKIPPED"]), output
    assert "no CUDA device" in output


@pytest.mark.gpu
def test_benchmark_file_runs(tree):
    (tree / "tests/benchmark/bench_silu_and_mul.py").write_text(BENCHMARK)
    code, output = pytest_in(tree, "tests/benchmark")
    assert (code, outcomes(output)) == (0, ["PASSED"]), output


@pytest.mark.skipif("cutile-cpu" not in get_available_backends(), reason="compares cutile-cpu with torch")
def test_benchmark_file_runs_on_a_cpu(tree):
    """With a clock for CPUs: triton's own needs a GPU."""
    clock = "triton.testing.do_bench = lambda fn: fn() is None or 1.0\n"
    on_cpu = BENCHMARK.replace("ALL_BACKENDS =", clock + "ALL_BACKENDS =", 1).replace('"cuda"', '"cpu"')
    on_cpu = on_cpu.replace('"cutile"', '"cutile-cpu"')
    (tree / "tests/benchmark/bench_silu_and_mul.py").write_text(on_cpu)
    code, output = pytest_in(tree, "tests/benchmark")
    assert (code, outcomes(output)) == (0, ["PASSED"]), output
    (tree / "tests/benchmark/bench_silu_and_mul.py").write_text(on_cpu.replace("silu(gate) * up", "silu(gate)"))
    code, output = pytest_in(tree, "tests/benchmark")
    assert (code, outcomes(output)) == (1, ["FAILED"]), output
    assert "Tensor-likes are not close" in output
