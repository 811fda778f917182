"""A compiled call is checked, chosen and served as the same call is eagerly.

What a check raises while code is being traced comes out inside an exception of the compiler's own.
"""

from __future__ import annotations

import dataclasses
import functools
import linecache

import pytest
import torch

import tilegym
from tilegym.contract import Contract, Gradient
from tilegym.errors import DtypeError, RegistrationError, ShapeError
from tilegym.ops import rms_norm, softmax

X = torch.ones(2, 3)


@pytest.fixture(params=["inlined", "one node"])
def scaled(request):
    """Registers softmax on backend `scaled`, for two rows only."""

    def supports(x):
        return None if x.shape[0] == 2 else "two rows only"

    composite = request.param == "inlined"
    tilegym.register_impl("softmax", "scaled", supports=supports, composite=composite)(scale_it)
    yield composite
    torch.compiler.reset()


def scale_it(x, *, use_chunked=None, scale=1.0):
    return x * scale * (10 if use_chunked else 1)


def compiled(**options):
    return torch.compile(lambda x: softmax(x, backend="scaled", **options), backend="eager", fullgraph=True)


def test_options_and_hints_reach_the_implementation(scaled):
    """A node's schema holds none of an implementation's own options: there they are refused."""
    if scaled:
        assert torch.equal(compiled(scale=3.0, use_chunked=True, use_multi_wave=True)(X), X * 30)
    else:
        with pytest.raises(Exception, match=r"option\(s\) scale"):
            compiled(scale=3.0)(X)


def test_hints_are_checked(scaled):
    with pytest.raises(Exception, match="use_chunked must be one of"):
        compiled(use_chunked="perhaps")(X)


def test_supports_is_asked(scaled):
    assert torch.equal(compiled()(X), X)
    with pytest.raises(Exception, match="two rows only"):
        compiled()(torch.ones(3, 3))


def test_an_argument_error_is_the_eager_one_where_the_graph_may_break(scaled):
    """And the compiler does not try and compile the dispatcher: it would warn, and warnings are errors here."""
    call = torch.compile(lambda x: softmax(x, backend="scaled") * 2, backend="eager")
    for bad, error in ((X.to(torch.int64), DtypeError), (torch.ones(()), ShapeError)):
        with pytest.raises(error, match="softmax: x must"):
            call(bad)


def test_tensors_in_a_list_are_seen():
    @tilegym.dispatch("traced_lists")
    def lists(x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor: ...

    def canonical(x: torch.Tensor, others: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        return x, others

    def reference(x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        return x * x + sum(others)

    lists.contract = laboratory(canonical=canonical, reference=reference, gradient=None)
    tilegym.register_impl("traced_lists", "lab")(reference)
    eager = functools.partial(lists, backend="lab")
    for call in (eager, torch.compile(eager, backend="aot_eager", fullgraph=True)):
        torch.testing.assert_close(call(X, [X, 2 * X]), 4 * X)
        with pytest.raises(Exception, match="it has no backward, and an input requires a gradient"):
            call(X, [X, X.clone().requires_grad_()])
    torch.compiler.reset()


def test_an_input_without_a_gradient_is_refused():
    @tilegym.dispatch("traced_lab")
    def lab(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...

    lab.contract = laboratory()
    tilegym.register_impl("traced_lab", "lab")(lambda x, y: x * y)
    tilegym.register_backward("traced_lab", "lab")(lambda grad_output, y: grad_output * y)
    y = torch.ones(2, 3, requires_grad=True)
    eager = functools.partial(lab, backend="lab")
    for call in (eager, torch.compile(eager, backend="eager", fullgraph=True)):
        with pytest.raises(Exception, match="y requires a gradient, and the op has none for it"):
            call(X, y)
    torch.compiler.reset()


def test_an_op_declared_anew_is_the_new_one():
    def declare(**changes):
        @tilegym.dispatch("declared_anew")
        def op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...

        op.contract = dataclasses.replace(laboratory(), **changes)
        tilegym.register_impl("declared_anew", "lab")(lambda x, y: x * y)
        return op(X.to("meta"), X.to("meta"), backend="lab")

    assert declare().shape == (2, 3)
    assert declare(fake=lambda x, _: x.new_empty(5)).shape == (5,)
    with pytest.raises(RegistrationError, match="declared anew with other parameters, result or gradient"):
        declare(gradient=None)


def test_resolving_again_and_again_keeps_nothing():
    tilegym.register_impl("softmax", "lab")(lambda x: x)

    def resolve():
        with tilegym.trace():
            softmax(X, backend="lab")
        softmax(X, backend="lab")
        return len(linecache.cache)

    assert resolve() == resolve()


def laboratory(**changes):
    def canonical(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, y

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    contract = Contract(
        canonical=canonical,
        reference=reference,
        magnitude=reference,
        reduction=lambda *_: 1,
        fake=lambda x, _: torch.empty_like(x),
        samples=list,
        bytes_moved=lambda *_: 0,
        flops=lambda *_: 0,
        gradient=Gradient(inputs=("x",), magnitude=reference, saved=("y",), like=("y",)),
    )
    return dataclasses.replace(contract, **changes)


def test_vmap_over_what_captures_a_parameter():
    tilegym.register_impl("rms_norm", "plain", composite=True)(plain_norm)
    weight, x = torch.rand(3, requires_grad=True), torch.rand(4, 2, 3)
    output = torch.vmap(lambda x: rms_norm(x, None, weight, 0.0, backend="plain"))(x)
    torch.testing.assert_close(output, torch.nn.functional.rms_norm(x, (3,), weight, 0.0))
    assert output.requires_grad


def plain_norm(input, normalized_shape, weight, eps, bias, offset):
    return torch.nn.functional.rms_norm(input, normalized_shape, weight, eps)
