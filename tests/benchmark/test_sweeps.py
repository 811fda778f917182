"""The sweeps of this repository: each file is read, and every case is one that the op's contract and cuBLAS take."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.sweep import load

SWEEPS = Path(__file__).parents[2] / "benchmarks" / "sweeps"


def all_cases(name):
    return [
        case
        for series in load(SWEEPS / f"{name}.py")
        for dtype in series.dtypes
        for case in cases(series.op, dtype, samples=series.samples, graph=series.graph)
    ]


@pytest.mark.parametrize("name", sorted(file.stem for file in SWEEPS.glob("*.py")))
def test_no_case_is_there_twice(name):
    keys = [(case.op.name, case.dtype, case.sample.name) for case in all_cases(name)]
    assert len(keys) == len({*keys}) > 0


def test_matrix_products_are_40_shapes_in_three_dtypes():
    found = all_cases("gemm")
    shapes = {}
    for case in found:
        m, n, k = map(int, case.sample.name.removesuffix("-untransposed").split("x"))
        assert case.forward.flops == 2 * m * n * k
        assert case.graph
        assert 1 <= m <= 16384
        assert 1024 <= min(n, k) <= max(n, k) <= 28672
        shapes.setdefault(case.dtype, set()).add((m, n, k))
    assert {dtype: len(some) for dtype, some in shapes.items()} == {
        torch.bfloat16: 40,
        torch.float16: 40,
        torch.float8_e4m3fn: 40,
    }
    assert all(case.sample.args["trans_b"] for case in found if case.dtype.itemsize == 1)  # cuBLAS takes no others


def test_attention_is_over_as_many_tokens_in_every_case():
    found = all_cases("attention")
    sizes = set()
    for case in found:
        batch, heads, length, size = case.sample.args["q"].shape
        kv_heads = case.sample.args["k"].shape[1]
        assert (batch * length, heads * size) == (16384, 4096)
        assert case.sample.name.startswith(f"B{batch}-H{heads}")
        sizes.add((length, size, heads // kv_heads, case.sample.args["is_causal"]))
    assert sizes == {
        (length, size, group, is_causal)
        for length in (512, 1024, 2048, 4096, 8192, 16384)
        for size in (64, 128, 256)
        for group, is_causal in ((1, True), (1, False), (4, True), (8, True))
    }
