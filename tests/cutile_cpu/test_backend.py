"""Backend `cutile-cpu` runs the kernels of `tilegym-cutile`, and nothing in their place."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym import registry
from tilegym.conformance.cells import ops_of
from tilegym.guards import tensors_in
from tilegym.testing import materialize
from tilegym.testing.accuracy import tensors_of
from tilegym_cutile_cpu import record_launches


@pytest.mark.parametrize("name", ops_of("cutile-cpu"))
def test_every_sample_with_something_to_compute_launches_a_kernel(name):
    op = registry.get_op(name)
    for sample in op.contract.samples():
        arguments = materialize(sample, dtype=torch.float32)
        with record_launches() as launches:
            result = tensors_of(op.function(**arguments, backend="cutile-cpu"))[0]
        itself = any(result is value for value in arguments.values()) and "out" not in arguments
        empty = not all(one.numel() for one in (result, *tensors_in(arguments.values())))
        assert launches or itself or empty, sample.name


def test_backward_launches_kernels_too():
    x = torch.randn(3, 8, requires_grad=True)
    output = tilegym.ops.softmax(x, backend="cutile-cpu")
    with record_launches() as launches:
        output.sum().backward()
    assert {launch.kernel_name for launch in launches} == {"softmax_backward_rows"}


def test_auto_never_takes_it():
    explanation = tilegym.explain("softmax", torch.randn(2, 3))
    assert "cutile-cpu" in {candidate.backend for candidate in explanation.candidates}
    assert explanation.chosen != "cutile-cpu"
