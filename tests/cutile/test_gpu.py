"""What only a GPU can show: streams, devices, threads, graphs, and more than 2^31 elements."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from typer.testing import CliRunner

from _tilegym_cli import app
from tilegym import cache, config
from tilegym_cutile import tables, tuning
from tilegym_cutile.ops.rms_norm import rms_norm
from tilegym_cutile.ops.silu_and_mul import silu_and_mul
from tilegym_cutile.ops.softmax import softmax

pytestmark = pytest.mark.gpu


def randn(*shape, device="cuda", dtype=torch.bfloat16):
    return torch.randn(shape, device=device, dtype=dtype)


def close(actual, expected):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=8e-3, atol=1e-5)


def test_the_current_stream_is_used():
    """The input is only written after a long wait on the same stream: a launch elsewhere would read zeros."""
    stream = torch.cuda.Stream()
    source, x = randn(64, 1024), torch.zeros(64, 1024, device="cuda", dtype=torch.bfloat16)
    softmax(x)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.copy_(source)
        y = softmax(x)
    stream.synchronize()
    close(y, torch.softmax(source, -1))


def test_a_fresh_thread_launches():
    """CUDA makes a context current per thread, on the thread's first call to the runtime."""
    x, results = randn(64, 1024), []
    thread = threading.Thread(target=lambda: results.append(softmax(x)))
    thread.start()
    thread.join()
    close(results[0], torch.softmax(x, -1))


def test_the_tensors_device_is_used_whatever_the_current_one_is():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x = randn(64, 1024, device="cuda:1")
    assert torch.cuda.current_device() == 0
    y = softmax(x)
    assert y.device == x.device
    assert torch.cuda.current_device() == 0
    close(y, torch.softmax(x, -1))


def test_ops_are_captured_in_a_graph_and_replayed():
    x, weight = randn(16, 4096), randn(4096)

    def block():
        return softmax(rms_norm(x, (4096,), weight, 1e-6)), silu_and_mul(x)

    block()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        probabilities, activated = block()
    x.copy_(randn(16, 4096))
    graph.replay()
    torch.cuda.synchronize()
    close(probabilities, torch.softmax(F.rms_norm(x, (4096,), weight, 1e-6), -1))
    close(activated, F.silu(x[:, :2048]) * x[:, 2048:])


FIRST_CALLS = """
import torch
import torch.nn.functional as F
import tilegym

def close(actual, expected):
    torch.testing.assert_close(actual.double(), expected.double(), rtol=8e-3, atol=1e-5)

x = torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    probabilities = tilegym.ops.softmax(x, backend="cutile")
    activated = tilegym.ops.silu_and_mul(x, backend="cutile")
x.copy_(torch.randn(16, 4096, device="cuda", dtype=torch.bfloat16))
graph.replay()
torch.cuda.synchronize()
close(probabilities, torch.softmax(x, -1))
close(activated, F.silu(x[:, :2048]) * x[:, 2048:])
"""


def test_the_first_call_ever_may_be_captured():
    """In a fresh process: plugins load, kernels compile and load, all while the graph is captured."""
    done = subprocess.run([sys.executable, "-c", FIRST_CALLS], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_tune_keeps_what_is_faster_for_this_device(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEGYM_CACHE_DIR", str(tmp_path / "cache"))
    config.reload()
    tuning.reread()
    app._add_commands_of_plugins()
    wanted = ["softmax", "--shapes", "4096x1000", "--backward", "--limit", "4", "--json"]
    done = CliRunner().invoke(app.app, ["tune", *wanted, "--out", str(tmp_path / "table.json")])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["found"]
    assert {(row["function"], row["tried"]) for row in found} == {("softmax", 4), ("softmax_backward", 4)}
    assert tables.read(tmp_path / "table.json").device == torch.cuda.get_device_name()
    for row in found:
        assert row["best_ms"] <= row["heuristic_ms"]
        entries = cache.entries(f"tuning-{row['function']}").values()
        assert [*entries] == ([row["config"]] if row["better"] else [])
    tuning.reread()


def test_an_empty_input_leaves_the_device_usable():
    assert softmax(randn(0, 16)).shape == (0, 16)
    x = randn(4, 16)
    close(softmax(x), torch.softmax(x, -1))


@pytest.mark.slow
def test_more_than_2_to_the_31_elements():
    """Rows and columns beyond 2^31, in memory and in number: the last ones are right."""
    x = torch.zeros(2**31 + 4096, device="cuda", dtype=torch.bfloat16)
    x[-4096:] = randn(4096)
    close(softmax(x.view(-1, 4096))[-1], torch.softmax(x[-4096:], -1))
    narrow = softmax(x.view(-1, 1))
    assert torch.all(narrow[-4096:] == 1)
    halves = torch.zeros(2, 2**31 + 8, device="cuda", dtype=torch.bfloat16)
    halves[:, -8:] = randn(2, 8)
    y = silu_and_mul(halves.view(-1))
    close(y[-8:], F.silu(halves[0, -8:]) * halves[1, -8:])
    transposed = x[: 2**31].view(1024, 2**21).t()
    close(softmax(transposed)[-3:], torch.softmax(transposed[-3:], -1))
