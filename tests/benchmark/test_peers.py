"""Peers: other people's code behind the contracts, each with the contract's parameters and right where it is timed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

import tilegym
from tilegym import registry
from tilegym.benchmarking import suite
from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.plan import plan
from tilegym.benchmarking.results import Ceilings
from tilegym.benchmarking.suite import Options, run
from tilegym.benchmarking.timing import Timing
from tilegym.contract import Sample, TensorSpec
from tilegym.testing import assert_accurate, load_implementation, materialize

SOURCE = Path(__file__).parents[2] / "benchmarks" / "peers" / "src"
PEERS = {"eager", "compile", "cublas", "sdpa-cudnn", "sdpa-flash", "liger"}
CPU = torch.device("cpu")
MILLISECOND = Timing(median=1.0, low=1.0, high=1.0)


def files(package):
    return sorted(path.stem for path in (SOURCE / "tilegym_peers" / package).glob("[a-z]*.py"))


@pytest.fixture(autouse=True)
def _installed(tmp_path, monkeypatch):
    """The peers as a distribution that is installed, whether or not it is."""
    info = tmp_path / "tilegym_peers-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilegym-peers\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[tilegym]\npeers = tilegym_peers.plugin\n")
    monkeypatch.syspath_prepend(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    tilegym.config.reload()
    yield
    monkeypatch.undo()
    tilegym.config.reload()


@pytest.fixture
def _liger(monkeypatch):
    """Liger-Kernel's functions as its documentation has them, by PyTorch, where it is not installed."""

    def liger_rms_norm(X, W, eps, offset=0.0, casting_mode="llama", in_place=True):
        assert not in_place
        return F.rms_norm(X, W.shape, W + offset, eps)

    functional = ModuleType("liger_kernel.transformers.functional")
    functional.liger_softmax = lambda x: torch.softmax(x, -1)
    functional.liger_rms_norm = liger_rms_norm
    functional.liger_layer_norm = lambda X, W, B, eps: F.layer_norm(X, W.shape, W, B, eps)
    functional.liger_swiglu = lambda a, b: F.silu(a) * b
    functional.liger_geglu = lambda a, b: F.gelu(a, approximate="tanh") * b
    monkeypatch.setitem(sys.modules, "liger_kernel", ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", ModuleType("liger_kernel.transformers"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers.functional", functional)
    yield
    for op in files("liger"):
        sys.modules.pop(f"tilegym_peers.liger.{op}", None)


def test_peers_say_so_and_auto_takes_none():
    found = {name: backend for name, backend in registry.backends().items() if backend.peer}
    assert set(found) == PEERS
    assert not any(backend.auto for backend in found.values())
    assert "liger-kernel is not installed" in found["liger"].probe(CPU) or "liger_kernel" in sys.modules


@pytest.mark.usefixtures("_liger")
def test_each_has_the_contracts_parameters():
    checked = set()
    for name in registry.op_names():
        op = registry.get_op(name)
        for backend in PEERS:
            if registry.has_implementation(name, backend):
                op.check_signature(registry.implementation(name, backend))
                checked.add((name, backend))
    assert {(op, peer) for op in ("rms_norm", "silu_and_mul", "softmax") for peer in ("eager", "compile", "liger")} <= (
        checked
    )


def test_compile_has_what_eager_has():
    assert files("compiled") == files("eager")


def test_eager_results_and_gradients_are_right(monkeypatch):
    """Of every op there is, on its smallest case."""
    monkeypatch.setattr(suite, "time_in_turns", lambda calls, *_, **__: dict.fromkeys(calls, MILLISECOND))
    monkeypatch.setattr("tilegym.benchmarking.cases._QUICK_CASES", 1)
    ops = [op for op in files("eager") if op in registry.op_names()]
    planned = plan(ops, [torch.float32], CPU, backends=["eager"], quick=True, backward=True)
    rows = list(run(planned, Ceilings(copy_gbps=1.0, matmul_tflops={}), Options(device=CPU)))
    assert {row.op for row in rows} >= {"rms_norm", "silu_and_mul", "softmax"}
    assert [row.error for row in rows if row.error is not None] == []
    assert {row.direction for row in rows} == {"forward", "backward"}


@pytest.mark.usefixtures("_liger")
def test_ligers_functions_get_their_arguments():
    right = set()
    for op in set(files("liger")) & set(registry.op_names()):
        peer = load_implementation(op, "liger")
        for case in cases(op, torch.float32, quick=True)[:1]:
            arguments = case.arguments(CPU)
            refuses = peer.implementation.supports
            if refuses is None or refuses(*peer.contract.canonical(**arguments)) is None:
                assert_accurate(peer.contract, arguments, peer(arguments))
                right.add(op)
    assert {"rms_norm", "silu_and_mul", "softmax"} <= right


def test_cublas_multiplies_float8_as_the_contract_does():
    args = {
        "a": TensorSpec(shape=(5, 32)),
        "b": TensorSpec(shape=(64, 32)),
        "trans_b": True,
        "out_dtype": torch.bfloat16,
    }
    peer = load_implementation("matmul", "cublas")
    for more in ({}, {f"scale_{name}": TensorSpec(shape=(1,), fill="positive", dtype=torch.float32) for name in "ab"}):
        arguments = materialize(Sample(name="s", args={**args, **more}), dtype=torch.float8_e4m3fn)
        assert_accurate(peer.contract, arguments, peer(arguments))


def test_sdpa_decodes_as_the_contract_does():
    """By FlashAttention, which PyTorch has for the CPU too; cuDNN's file differs in a name."""
    keys = TensorSpec(shape=(2, 2, 70, 64))
    args = {"q": TensorSpec(shape=(2, 8, 1, 64)), "k": keys, "v": keys, "sm_scale": 0.2}
    peer = load_implementation("fmha_decode", "sdpa-flash")
    arguments = materialize(Sample(name="s", args=args), dtype=torch.bfloat16)
    assert_accurate(peer.contract, arguments, peer(arguments))


@pytest.mark.slow
def test_compiled_code_is_right_and_differentiable():
    arguments = materialize(Sample(name="s", args={"x": TensorSpec(shape=(4, 33))}), dtype=torch.float32)
    x = arguments["x"].requires_grad_()
    y = tilegym.ops.softmax(x, backend="compile")
    assert_accurate(tilegym.ops.softmax.contract, arguments, y)
    grads = [torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0] for _ in range(2)]
    assert torch.equal(*grads)
    assert grads[0].abs().max() < 1e-6


def test_a_peer_is_held_to_the_norm_alone(monkeypatch):
    """One element off by three roundings: too far for a backend, near enough for a peer."""
    monkeypatch.setattr(suite, "time_in_turns", lambda calls, *_, **__: dict.fromkeys(calls, MILLISECOND))

    def nearly(x):
        y = torch.softmax(x, -1)
        y[0, 0] *= 1 + 3 * 2**-8
        return y

    tilegym.register_impl("softmax", "mine")(nearly)
    tilegym.register_impl("softmax", "eager")(nearly)
    planned = plan(["softmax"], [torch.bfloat16], CPU, backends=["mine", "eager"], quick=True)
    mine, eager, *_ = run(planned, Ceilings(copy_gbps=1.0, matmul_tflops={}), Options(device=CPU))
    assert mine.error.startswith("wrong: output: ")
    assert eager.error is None
    tilegym.register_impl("softmax", "eager")(lambda x: 1.02 * torch.softmax(x, -1))
    _, eager, *_ = run(planned, Ceilings(copy_gbps=1.0, matmul_tflops={}), Options(device=CPU))
    assert eager.error.startswith("wrong: output: norm error 0.02")
