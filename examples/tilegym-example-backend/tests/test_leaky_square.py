"""What is particular to leaky_square; that its values are right is in test_conformance."""

import pytest
import torch

import tilegym

leaky_square = tilegym.ops.example.leaky_square


@pytest.mark.parametrize("backend", ["example", "torch"])
def test_values(backend):
    y = leaky_square(torch.tensor([-2.0, 0.0, 3.0]), slope=0.5, backend=backend)
    assert y.tolist() == [2.0, 0.0, 9.0]


def test_our_backend_comes_before_torch():
    assert tilegym.explain(leaky_square, torch.ones(4)).chosen == "example"


def test_gradient_comes_from_the_backend_that_has_one():
    x = torch.tensor([-2.0, 3.0], requires_grad=True)
    leaky_square(x, slope=0.5).sum().backward()
    assert x.grad.tolist() == [-2.0, 6.0]


def test_a_slope_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match=r"example\.leaky_square: slope must be a number, got str"):
        leaky_square(torch.ones(1), slope="steep")
