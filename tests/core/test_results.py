"""What an op may return and write: several tensors, plain numbers, its own argument, an argument written in place.

One op has it all, `scaled_sum(x, factor, training, inplace)` → (x * factor, its sum, the number of elements); it is
called eagerly, under autograd, compiled, and as PyTorch's own machinery sees it.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import tilegym
from tilegym.contract import Contract, Gradient
from tilegym.testing import assert_accurate
from tilegym.testing.accuracy import measure
from tilegym.testing.gradients import measure_gradients

X = torch.arange(6.0).reshape(2, 3)


def canonical(
    x: Tensor, factor: float = 2.0, training: bool = True, inplace: bool = False
) -> tuple[Tensor, float, Tensor | None]:
    return x, factor if training else 1.0, x if inplace else None


def reference(x: Tensor, factor: float, out: Tensor | None) -> tuple[Tensor, Tensor]:
    return x * factor, (x * factor).sum(-1)


@pytest.fixture
def scaled_sum():
    @tilegym.dispatch("scaled_sum")
    def scaled_sum(x: Tensor, factor: float = 2.0, training: bool = True, inplace: bool = False) -> Tensor: ...

    scaled_sum.contract = Contract(
        canonical=canonical,
        reference=reference,
        magnitude=lambda x, factor, out: reference(x.abs(), abs(factor), out),
        reduction=lambda x, *_: x.shape[-1],
        fake=lambda x, *_: (torch.empty_like(x), x.new_empty(x.shape[:-1])),
        samples=list,
        bytes_moved=lambda *_: 0,
        flops=lambda *_: 0,
        outputs=("scaled", "total"),
        gradient=Gradient(
            inputs=("x",), outputs=("scaled",), magnitude=lambda grad, x, factor, out: (grad * factor,),
            saved=("kept",), like=("grad_scaled",), residual_names=("kept",), residuals=lambda x, *_: (x.new_empty(1),),
        ),
        identity=lambda x, factor, out: x if factor == 1 else None,
        dressed=lambda result, x, *_: (*result, x.numel()),
    )  # fmt: skip

    def forward(x: Tensor, factor: float, out: Tensor | None) -> tuple[Tensor, Tensor]:
        y = x.detach() * factor
        return y if out is None else out.copy_(y), y.sum(-1)

    def backward(grad_scaled: Tensor, kept: Tensor, *, factor: float) -> Tensor:
        assert kept.item() == 7
        return grad_scaled * factor

    tilegym.register_impl("scaled_sum", "kernels")(forward)
    tilegym.register_backward(
        "scaled_sum", "kernels", forward=lambda x, factor, out: (*forward(x, factor, out), x.new_full((1,), 7.0))
    )(backward)
    yield scaled_sum
    torch.compiler.reset()


def ways(op):
    """Eager, eager again from the table, and compiled."""

    def call(x, **given):
        return op(x, **given, backend="kernels")

    return [call, call, torch.compile(call, backend="aot_eager", fullgraph=True)]


def test_tensors_and_numbers_come_back(scaled_sum):
    for call in ways(scaled_sum):
        scaled, total, elements = call(X, factor=3.0)
        assert torch.equal(scaled, X * 3)
        assert torch.equal(total, X.sum(-1) * 3)
        assert elements == 6


def test_only_outputs_that_have_a_gradient_are_part_of_the_graph(scaled_sum):
    for call in ways(scaled_sum):
        x = X.clone().requires_grad_()
        scaled, total, _ = call(x, factor=3.0)
        assert scaled.requires_grad
        assert not total.requires_grad
        (scaled * X).sum().backward()
        assert torch.equal(x.grad, X * 3)


def test_nothing_to_compute_gives_the_argument_itself(scaled_sum):
    for call in ways(scaled_sum):
        for x in (X, X.clone().requires_grad_()):
            assert call(x, training=False) is x


def test_in_place_writes_and_returns_the_argument(scaled_sum):
    for call in ways(scaled_sum):
        x = X.clone()
        scaled, total, _ = call(x, inplace=True)
        assert scaled is x
        assert torch.equal(x, X * 2)
        assert torch.equal(total, X.sum(-1) * 2)


def test_in_place_is_differentiated(scaled_sum):
    def call(leaf):
        x = leaf * 5
        scaled, _, _ = scaled_sum(x, inplace=True, backend="kernels")
        return x, scaled

    for way in (call, call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        leaf = X.clone().requires_grad_()
        x, scaled = way(leaf)
        assert torch.equal(x, X * 10)
        (scaled * X).sum().backward()
        assert torch.equal(leaf.grad, X * 10)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        scaled_sum(leaf, inplace=True, backend="kernels")


def test_pytorch_sees_a_functional_op(scaled_sum):
    scaled_sum(X.to("meta"), backend="kernels")
    for name in ("scaled_sum", "scaled_sum_fwd"):
        overload = getattr(torch.ops.tilegym, name).default
        found = torch.library.opcheck(overload, (X.clone().requires_grad_(), 2.0), {"backend": "kernels"})
        assert set(found.values()) == {"SUCCESS"}
    graph = make_fx(lambda x: scaled_sum(x, backend="kernels")[1])(X)
    assert "tilegym.scaled_sum.default" in {str(node.target) for node in graph.graph.nodes}


def test_each_output_is_measured(scaled_sum):
    right = scaled_sum(X, backend="kernels")
    assert_accurate(scaled_sum.contract, {"x": X}, right)
    with pytest.raises(AssertionError, match="total: norm error"):
        assert_accurate(scaled_sum.contract, {"x": X}, (right[0], right[1] + 1))
    with pytest.raises(AssertionError, match="expected shape"):
        measure(scaled_sum.contract, {"x": X}, right[:1])
    contract, grad = scaled_sum.contract, torch.ones(2, 3)
    for factor, ok in ((2, True), (2.1, False)):
        found = measure_gradients(contract, contract.gradient, {"x": X}, (grad,), {"x": grad * factor})
        assert found["x"].ok is ok


def test_a_backend_that_is_named_must_exist_though_nothing_is_computed(scaled_sum):
    with pytest.raises(ValueError, match="no installed distribution provides a backend"):
        scaled_sum(X, training=False, backend="kernel")
