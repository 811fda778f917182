"""Compiling ahead, in another process: what compiles lies in the disk cache then, and what does not is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cuda.tile._cext import default_tile_context

from tilegym.benchmarking.cases import cases
from tilegym.contract import Sample, TensorSpec
from tilegym_cutile import tuning
from tilegym_cutile.ahead import compiling_ahead
from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.ops import softmax
from tilegym_cutile.runtime import ARCHITECTURES, Hints, recording


def test_another_process_compiles_what_a_call_would_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", str(tmp_path / "cubins"))
    sample = Sample(name="64x100", args={"x": TensorSpec(shape=(64, 100))})
    [case] = cases("softmax", torch.bfloat16, samples=[sample])
    question = tuning._functions["softmax"].question(64, 100, 2, ARCHITECTURES["sm_90"])
    good = replace(question.plain, hints=Hints(num_worker_warps=8))
    bad = replace(question.plain, columns=100)  # no power of two
    with compiling_ahead(1, compile_seconds=60.0) as begin:
        why_not = begin(case, question, [good, bad])
        assert why_not(good) is None
        assert "kernel softmax_rows of softmax, sample 64x100" in why_not(bad)
    monkeypatch.setattr(default_tile_context.config, "cache_dir", str(tmp_path / "cubins"))
    monkeypatch.setattr("cuda.tile._compile.compile_cubin", lambda *_, **__: pytest.fail("it is compiled again"))
    with tuning.forced(question, good), recording(arch="sm_90") as launches:
        softmax.softmax(torch.empty(64, 100, dtype=torch.bfloat16))
    compilation = Case(op="softmax", sample="64x100", dtype=torch.bfloat16, launch=launches[0])
    assert compile_case(compilation, "sm_90").usage.registers > 0
