"""Compiling ahead, in another process: what compiles lies in the disk cache then, and what does not is told."""

from __future__ import annotations

import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from cuda.tile._cext import default_tile_context
from cutile_cache._cache import cache_entries

from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.plan import Plan
from tilegym.contract import Sample, TensorSpec
from tilegym_cutile import ahead, tuning
from tilegym_cutile.ahead import compiling_ahead
from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.ops import softmax
from tilegym_cutile.runtime import ARCHITECTURES, Hints, recording
from tilegym_cutile.search import Limits
from tilegym_cutile.tuning import Question


def test_another_process_compiles_what_a_call_would_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", str(tmp_path / "cubins"))
    sample = Sample(name="64x100", args={"x": TensorSpec(shape=(64, 100))})
    entries = tuple((case, "forward", ("cutile",)) for case in cases("softmax", torch.bfloat16, samples=[sample]))
    question = tuning._functions["softmax"].question(64, 100, 2, ARCHITECTURES["sm_90"])
    good = replace(question.plain, hints=Hints(num_worker_warps=8))
    bad = replace(question.plain, columns=100)  # no power of two
    unseen = replace(question.plain, rows=8)
    monkeypatch.setattr(Question, "space", [good, bad, unseen])
    monkeypatch.setattr(ahead, "target_of", lambda _: ARCHITECTURES["sm_90"])
    limits = Limits(configs=2, compile_seconds=60.0)
    with compiling_ahead(Plan(entries=entries, left_out={}), torch.device("cpu"), limits, jobs=1) as why_not:
        assert why_not(question, good) is None
        assert "kernel softmax_rows of softmax, sample 64x100" in why_not(question, bad)
        assert why_not(question, unseen) is None
    monkeypatch.setattr(default_tile_context.config, "cache_dir", str(tmp_path / "cubins"))
    monkeypatch.setattr("cuda.tile._compile.compile_cubin", lambda *_, **__: pytest.fail("it is compiled again"))
    with tuning.forced(question, good), recording(arch="sm_90") as launches:
        softmax.softmax(torch.empty(64, 100, dtype=torch.bfloat16))
    compilation = Case(op="softmax", sample="64x100", dtype=torch.bfloat16, launch=launches[0])
    assert compile_case(compilation, "sm_90").usage.registers > 0


class Here:
    """A process that is this one; what it is given is packed and unpacked all the same."""

    def submit(self, function):
        done = Future()
        done.set_result(pickle.loads(pickle.dumps(function))())  # noqa: S301 - it was packed here
        return done


def test_a_benchmarks_kernels_are_compiled_each_once(tmp_path, monkeypatch):
    """Those of three calls, one of which is refused; two of them launch one and the same forward."""
    monkeypatch.setattr(default_tile_context.config, "cache_dir", str(tmp_path / "cubins"))
    monkeypatch.setattr(ahead, "_processes", lambda _: nullcontext(Here()))
    monkeypatch.setattr(ahead, "target_of", lambda _: ARCHITECTURES["sm_90"])
    samples = [Sample(name=f"{m}x100", args={"x": TensorSpec(shape=(m, 100))}) for m in (4096, 8192)]
    first, second = cases("softmax", torch.bfloat16, samples=samples)
    refused = replace(first, dtype=torch.float64)
    ahead.compile_calls([(refused, "forward"), (first, "forward"), (second, "backward")], torch.device("cpu"), jobs=2)
    names = [name for entry in cache_entries(str(tmp_path / "cubins"), 9) for name in entry.metadata.kernel_names]
    assert sorted(name.partition("_K")[0] for name in names) == ["softmax_backward_rows", "softmax_rows"]


def test_what_has_not_begun_when_it_is_interrupted_is_not_compiled(monkeypatch):
    def interrupted(*about):
        compiled.append(about)
        raise KeyboardInterrupt

    compiled = []
    monkeypatch.setattr(ahead, "_processes", lambda _: ThreadPoolExecutor(1))
    monkeypatch.setattr(ahead, "target_of", lambda _: ARCHITECTURES["sm_90"])
    monkeypatch.setattr(ahead, "_compile", interrupted)
    monkeypatch.setattr(Future, "exception", lambda one: one.result())  # of a process, Ctrl-C is for who waits
    samples = [Sample(name=f"64x{n}", args={"x": TensorSpec(shape=(64, n))}) for n in range(2**10, 2**16, 2**10)]
    calls = [(case, "forward") for case in cases("softmax", torch.bfloat16, samples=samples)]
    with pytest.raises(KeyboardInterrupt):
        ahead.compile_calls(calls, torch.device("cpu"), jobs=1)
    assert 1 <= len(compiled) < len(calls)
