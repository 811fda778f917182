"""The gradients of an op that takes and returns tensors in lists, beside those of PyTorch for its reference."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import tilegym
from tilegym.contract import Contract, Gradient
from tilegym.errors import GradientError

SIZES = [2, 3]


def reference(x: Tensor, group: list[Tensor], others: list[Tensor], sizes: list[int]) -> tuple[list[Tensor], Tensor]:
    total = torch.stack([*others, x]).sum(0) * len(sizes)
    return [x * one for one in group], total


def forward(x, group, others, sizes):
    products, total = reference(x, group, others, sizes)
    return products, total, 2 * x


asked = []


def backward(grad_products, group, others, doubled, sizes, needs):
    asked.append(needs)
    assert (len(others), list(sizes)) == (1, SIZES)
    of_group, of_x = needs
    gradients = [grad * doubled / 2 if needed else None for grad, needed in zip(grad_products, of_group, strict=True)]
    used = [(grad, one) for grad, one in zip(grad_products, group, strict=True) if grad is not None]
    return gradients, sum(grad * one for grad, one in used) if of_x else None


@pytest.fixture
def op():
    @tilegym.dispatch("with_lists")
    def with_lists(x: Tensor, group: list[Tensor], others: list[Tensor], sizes: list[int]): ...

    with_lists.contract = Contract(
        canonical=lambda x, group, others, sizes: (x, tuple(group), others, sizes),
        reference=reference,
        magnitude=reference,
        reduction=lambda *_: 1,
        fake=reference,
        samples=list,
        bytes_moved=lambda *_: 0,
        flops=lambda *_: 0,
        outputs=("products", "total"),
        gradient=Gradient(
            inputs=("group", "x"),
            magnitude=reference,
            outputs=("products",),
            residual_names=("doubled",),
            residuals=lambda x, *_: (torch.empty_like(x),),
            saved=("group", "others", "doubled"),
            like=("group", "doubled"),
        ),
    )
    tilegym.register_impl("with_lists", "lab")(reference)
    tilegym.register_backward("with_lists", "lab", forward=forward)(backward)
    yield with_lists
    torch.compiler.reset()


def eager(call):
    return call


def compiled(call):
    return torch.compile(call, backend="aot_eager", fullgraph=True)


@pytest.fixture
def direct(op):
    return lambda x, *group: op(x, group, [torch.full((3,), 4.0)], SIZES, backend="lab")


@pytest.fixture(params=[eager, compiled])
def call(direct, request):
    return request.param(direct)


@pytest.mark.parametrize("needs", [(True, True, True), (False, True, False), (True, False, False)])
def test_exactly_the_members_that_need_a_gradient_get_one(call, needs):
    leaves = [
        torch.arange(3.0).add(start).requires_grad_(needed) for start, needed in zip((1, 5, 9), needs, strict=True)
    ]
    products, total = call(*leaves)
    x, *group = [leaf.detach() for leaf in leaves]
    torch.testing.assert_close(products, [x * one for one in group])
    torch.testing.assert_close(total, 2 * (x + 4))
    assert not total.requires_grad
    asked.clear()
    (3 * products[0] + products[1]).sum().backward()
    for leaf, needed, expected in zip(leaves, needs, [3 * group[0] + group[1], 3 * x, x], strict=True):
        assert torch.equal(leaf.grad, expected) if needed else leaf.grad is None
    assert asked == [[[*needs[1:]], needs[0]]]


@pytest.mark.parametrize("mode", [contextlib.nullcontext, functools.partial(FlopCounterMode, display=False)])
def test_a_member_that_nobody_has_used_has_no_gradient(direct, mode):
    """As in PyTorch, also where that must see the op; compiled code, anybody's, gives zeros."""
    leaves = [torch.full((3,), value).requires_grad_() for value in (1.0, 5.0, 9.0)]
    asked.clear()
    with mode():
        direct(*leaves)[0][1].sum().backward()
    assert [None if leaf.grad is None else leaf.grad.tolist() for leaf in leaves] == [[9.0] * 3, None, [1.0] * 3]
    assert asked == [[[False, True], True]]


def test_a_list_may_have_no_members(call):
    x = torch.ones(3, requires_grad=True)
    assert call(x)[0] == []


def test_a_second_derivative_is_refused(direct):
    x, one = torch.ones(3, requires_grad=True), torch.ones(3)
    [gradient] = torch.autograd.grad(direct(x, one)[0][0].square().sum(), x, create_graph=True)
    assert gradient.tolist() == [2.0] * 3
    with pytest.raises(GradientError, match="with_lists: a second derivative"):
        gradient.sum().backward()


def test_a_member_of_a_list_that_has_no_gradient_is_refused_one(op):
    other = torch.ones(3, requires_grad=True)
    with pytest.raises(NotImplementedError, match="others requires a gradient, and the op has none for it"):
        op(torch.ones(3), [], [other], SIZES, backend="lab")
