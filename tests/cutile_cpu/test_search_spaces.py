"""The first and the last configuration of each search space give right results, forward and backward."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.checked import calls_of
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
