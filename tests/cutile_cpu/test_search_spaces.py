"""Configurations of each search space give right results, forward and backward: the first, the last, every tile."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.checked import calls_of
from tilegym.contract import FLOAT8, Sample, TensorSpec
from tilegym_cutile import tuning

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("op", "functions"),
    [
        ("softmax", {"softmax", "softmax_backward"}),
        ("layer_norm_legacy", {"norm", "norm_backward"}),
        ("apply_rope_base", {"rope"}),
        ("geglu", {"elementwise"}),
        ("splitk_reduce", {"reduce_splits"}),
        ("bmm", {"gemm"}),
        ("fmha", {"attention", "attention_backward_keys", "attention_backward_queries"}),
    ],
)
def test_results_do_not_depend_on_the_configuration(op, functions):
    samples = getattr(tilegym.ops, op).contract.samples()
    case = next(case for case in cases(op, torch.float32, samples=samples) if case.forward.bytes > 5000)
    sets = [case.arguments(CPU)]
    tuned = set()
    for direction in ("forward", "backward") if case.backward is not None else ("forward",):
        call = calls_of(case, direction, "cutile-cpu", sets).calls[0]
        with tuning.observed() as questions:
            call()
        for question in questions:
            for config in question.space[:1] + question.space[-1:]:
                with tuning.forced(question, config):
                    assert len(calls_of(case, direction, "cutile-cpu", sets).calls) == 1  # each result is checked there
                tuned.add(question.function.name)
    assert tuned == functions


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_products_do_not_depend_on_the_tile(dtype):
    """Nor on the parts that it is added up in, nor on SMs that share it; with all that follows a product."""
    m, n, k = 130, 304, 80
    single = torch.float32
    args = {
        "a": TensorSpec(shape=(m, k)),
        "b": TensorSpec(shape=(n, k)),
        "trans_b": True,
        "out_dtype": single,
        "bias": TensorSpec(shape=(n,), dtype=single),
        "activation": "relu",
        "residual": TensorSpec(shape=(m, n), dtype=single),
    }
    (case,) = cases("matmul", dtype, samples=[Sample(name="ragged", args=args)])
    sets = [case.arguments(CPU)]
    with tuning.observed() as questions:
        calls_of(case, "forward", "cutile-cpu", sets)
    (question,) = questions
    tiles = {(config.tile, config.parts, config.hints.num_ctas): config for config in question.space}
    assert {parts for _, parts, _ in tiles} == ({1} if dtype in FLOAT8 else {1, 3})
    assert {ctas for _, _, ctas in tiles} == ({None, 2, 4} if dtype in FLOAT8 else {None, 2})
    for config in tiles.values():
        with tuning.forced(question, config):
            assert len(calls_of(case, "forward", "cutile-cpu", sets).calls) == 1
