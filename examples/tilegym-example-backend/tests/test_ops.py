"""Every sample of each contract, on each backend that this distribution implements it for."""

import pytest
import torch

import tilegym
from tilegym.contract import FLOATS
from tilegym.testing import assert_accurate, materialize

IMPLEMENTED = [
    (tilegym.ops.softmax, "example"),
    (tilegym.ops.example.leaky_square, "example"),
    (tilegym.ops.example.leaky_square, "torch"),
]
CASES = [(op, backend, sample) for op, backend in IMPLEMENTED for sample in op.contract.samples()]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("op", "backend", "sample"), CASES, ids=[f"{op.__name__}-{backend}-{sample.name}" for op, backend, sample in CASES]
)
def test_accurate(op, backend, sample, dtype):
    arguments = materialize(sample, dtype=dtype)
    assert_accurate(op.contract, arguments, op(**arguments, backend=backend))


def test_our_backend_serves_when_it_is_the_best():
    assert tilegym.explain("example.leaky_square", torch.randn(4)).chosen == "example"


def test_gradient_goes_to_the_backend_that_has_one():
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    tilegym.ops.example.leaky_square(x, slope=0.5).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([-2.0, 6.0]))
