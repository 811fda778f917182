"""`PyTestCase`: each argument of its assertions decides something, and what is wrong fails."""

from __future__ import annotations

import pytest
import torch

from tilegym.testing import PyTestCase

case = PyTestCase()
X = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def double(x):
    return 2 * x


def fails(*args, match=None, error=AssertionError, **kwargs):
    with pytest.raises(error, match=match):
        case.assertCorrectness(*args, **kwargs)


def test_equal_functions_pass_and_others_do_not():
    case.assertCorrectness(double, lambda x: x + x, {"x": X})
    fails(double, lambda x: x * x, {"x": X}, match="output: Tensor-likes are not close")
    fails(double, lambda x: (x + x).double(), {"x": X}, match="dtype")
    fails(double, lambda x: (x + x)[:1], {"x": X}, match="shape")


def test_tolerances_are_the_callers():
    def near(x):
        return 2 * x + 0.01

    fails(near, double, {"x": X})
    case.assertCorrectness(near, double, {"x": X}, rtol=0.0, atol=0.011)
    fails(near, double, {"x": X}, rtol=0.0, atol=0.009)
    case.assertCorrectness(near, double, {"x": X}, rtol=0.006, atol=0.0)


def test_nan_equals_nan_only_if_asked():
    x = torch.tensor([torch.nan, 1.0])
    fails(double, double, {"x": x})
    case.assertCorrectness(double, double, {"x": x}, equal_nan=True)


def test_strides_count_only_if_asked():
    def transposed(x):
        return double(x).t().contiguous().t()

    case.assertCorrectness(transposed, double, {"x": X})
    fails(transposed, double, {"x": X}, check_stride=True, match="stride")
    fails(transposed, double, {"x": X}, check_stride=True, comparison_chunk_size=2, match="strides")


def test_extra_arguments_go_to_one_side():
    def scaled(x, factor):
        return factor * x

    case.assertCorrectness(scaled, scaled, {"x": X}, {"factor": 2}, {"factor": 2})
    fails(scaled, scaled, {"x": X}, {"factor": 2}, {"factor": 3})


def test_the_reference_gets_what_was_given_though_the_tested_function_writes_it():
    x = X.clone()
    fails(lambda x: x.mul_(2), lambda x: x.clone(), {"x": x})
    assert x.tolist() == [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]  # the tensor itself
    case.assertCorrectness(lambda x: x.mul_(2), double, {"x": x})
    seen = []
    sliced = torch.ones(4, 6)[:, ::2]
    case.assertCorrectness(lambda x: seen.append(x.stride()) or x, lambda x: x, {"x": sliced})
    assert seen == [(6, 2)]


def test_several_outputs():
    def both(x):
        return x, 2 * x

    case.assertCorrectness(both, both, {"x": X}, multiple_outputs=True)
    fails(both, lambda x: (x, 3 * x), {"x": X}, multiple_outputs=True, match="output 1")
    fails(both, lambda x: (x,), {"x": X}, multiple_outputs=True, match="2 outputs")
    fails(both, double, {"x": X}, error=TypeError, match="multiple_outputs=True, or test_index=")
    fails(double, both, {"x": X}, error=TypeError, match="multiple_outputs=True, or ref_index=")
    case.assertCorrectness(both, double, {"x": X}, test_index=1)
    case.assertCorrectness(double, both, {"x": X}, ref_index=1)
    fails(both, double, {"x": X}, test_index=0)


def test_outputs_are_processed_on_both_sides():
    case.assertCorrectness(lambda x: x.flip(1), lambda x: x, {"x": X}, output_processor=lambda y: y.sort(-1).values)
    fails(lambda x: x.flip(1), lambda x: x + 1, {"x": X}, output_processor=lambda y: y.sort(-1).values)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_comparison_in_pieces_sees_every_element(size):
    case.assertCorrectness(double, double, {"x": X}, comparison_chunk_size=size)
    for index in range(X.numel()):
        wrong = torch.zeros(X.numel())
        wrong[index] = 1
        start = index // size * size
        wanted = f"elements from {start}:"
        fails(double, lambda x, w=wrong: 2 * x + w.view(x.shape), {"x": X}, comparison_chunk_size=size, match=wanted)


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


def test_gradients_of_all_inputs_that_require_one():
    def weighted(x, weight, others):
        return x * weight + others[0]

    kwargs = {"x": X.clone().requires_grad_(), "weight": torch.ones(3), "others": [torch.ones(3).requires_grad_()]}
    case.assertCorrectness(weighted, weighted, kwargs, gradient=torch.ones(2, 3))
    constant = {"x": X}
    fails(double, double, constant, gradient=torch.ones(2, 3), match="does an input require one")
    x = {"x": X.clone().requires_grad_()}
    case.assertCorrectness(_WrongGradient.apply, double, x)
    fails(_WrongGradient.apply, double, x, gradient=torch.ones(2, 3), match="gradient of x")
    fails(lambda x: 2 * x.detach() + 0 * x, double, x, gradient=torch.ones_like, match="gradient of x")
    detached = kwargs | {"others": [torch.ones(3)]}
    fails(
        lambda x, weight, others: x * weight + others[0].detach(),
        weighted,
        kwargs,
        gradient=torch.ones(2, 3),
        match=r"gradient of others\[0\]",
    )
    case.assertCorrectness(lambda x, weight, others: x * weight + others[0].detach(), weighted, detached, gradient=X)


def test_a_function_makes_one_gradient_for_both_sides():
    x = {"x": X.clone().requires_grad_()}
    case.assertCorrectness(double, double, x, gradient=torch.randn_like)
    both = {"multiple_outputs": True, "gradient": (torch.ones(2, 3), X)}
    case.assertCorrectness(lambda x: (x, x * x), lambda x: (x * 1, x**2), x, **both)
    fails(lambda x: (x, x * x), lambda x: (x * 1, x**2 + 0 * x.detach() + x - x.detach()), x, **both, match="gradient")


def test_set_up_makes_inputs_the_same_each_time():
    case.setUp()
    first = torch.randn(3)
    case.setUp()
    assert torch.equal(torch.randn(3), first)


def test_what_changes_from_call_to_call_is_not_deterministic():
    calls = []

    def drifting(x):
        calls.append(x)
        return x * (1 if len(calls) < 3 else 1 + 1e-7)

    case.assertDeterministic(double, {"x": X})
    with pytest.raises(AssertionError, match="output 0 of run 2 differs"):
        case.assertDeterministic(drifting, {"x": X})
    x = {"x": X.clone().requires_grad_()}
    case.assertDeterministic(double, x, gradient=torch.ones(2, 3))
    scales = iter([1.0, 1.0, 2.0, 1.0])

    def drifting_gradient(x):
        scale = next(scales)
        return scale * x + (1 - scale) * x.detach()

    with pytest.raises(AssertionError, match="gradient of x of run 2"):
        case.assertDeterministic(drifting_gradient, {"x": torch.ones(3, requires_grad=True)}, gradient=torch.ones(3))


class TestThePlugin(PyTestCase):
    def test_arch_is_that_of_the_gpu(self, arch):
        expected = "cpu"
        if torch.cuda.is_available():
            expected = "sm_{}{}".format(*torch.cuda.get_device_capability())
        assert arch == expected
