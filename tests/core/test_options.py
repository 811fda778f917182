"""Calls with keyword options: the second one of a kind is resolved by the table, and gets its own values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import tilegym
from tilegym import calls, guards
from tilegym.contract import Contract, check_tensor
from tilegym.errors import ArgumentTypeError, ArgumentValueError, NoImplementationError

X = torch.ones(3)


def table_of(op):
    return op.__tilegym_op__.table


@pytest.fixture
def resolved(monkeypatch):
    """A function: from now on no call may be resolved anew."""

    def never(*_: Any) -> None:
        raise AssertionError("the call was not in the table")

    return lambda: monkeypatch.setattr(calls, "select", never)


@pytest.fixture
def echo():
    """An op without a contract, which returns its options."""

    @tilegym.dispatch("echo")
    def echo(x: Tensor, /, **kwargs: Any) -> Any:
        """The options."""

    tilegym.register_impl("echo", "mine")(lambda x, /, **options: options)
    tilegym.set_backend("mine")
    return echo


@pytest.fixture
def scaled():
    """An op with a contract: `x * factor + bias`, and a hint."""

    @tilegym.dispatch("scaled")
    def scaled(x: Tensor, **kwargs: Any) -> Tensor:
        """Returns `x * factor + bias`."""

    def canonical(x: Tensor, factor: float = 1.0, bias: Tensor | None = None) -> tuple[Any, ...]:
        check_tensor("scaled", "x", x)
        if not isinstance(factor, (int, float)):
            raise ArgumentTypeError(f"scaled: factor must be a number, got {factor!r}")
        return x, factor, bias

    def reference(x: Tensor, factor: float, bias: Tensor | None) -> Tensor:
        return x * factor if bias is None else x * factor + bias

    scaled.contract = Contract(
        canonical=canonical,
        reference=reference,
        magnitude=reference,
        reduction=lambda *_: 1,
        fake=lambda x, *_: torch.empty_like(x),
        samples=list,
        bytes_moved=lambda *_: 0,
        flops=lambda *_: 0,
        hints={"fast": (False, True)},
    )
    tilegym.register_impl("scaled", "mine", composite=True)(reference)
    tilegym.set_backend("mine")
    return scaled


VALUES = [1, True, 1.0, 0.0, -0.0, math.nan, math.inf, "1", None, torch.float16, torch.device("cpu")]


def test_a_value_is_the_calls_own(echo, resolved):
    echo(X, value=7)
    resolved()
    for value in VALUES:
        assert echo(X, value=value)["value"] is value
    assert len(table_of(echo)) == 1
    assert [len(entries) for entries in table_of(echo).values()] == [1]


def test_values_stay_with_their_names(echo, resolved):
    orders: list[dict[str, Any]] = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}, {"b": 2}, {}]
    first = [echo(X, **options) for options in orders]
    resolved()
    assert [echo(X, **options) for options in orders] == first == orders


def test_a_name_may_be_any_string(echo, resolved):
    options = {"two words": 1, "class": 2, "_function": 3, "_option_0": 4, "run": 5}
    for _ in range(2):
        assert echo(X, **options) == options
        resolved()


def test_an_option_may_not_repeat_a_parameter(echo):
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match="echo: x given twice, by position and as an option"):
            echo(X, x=2)


def test_a_tensor_that_comes_or_goes_is_another_kind(scaled, resolved):
    bias = torch.tensor([1.0, 2.0, 3.0])
    given: list[dict[str, Any]] = [{"bias": bias}, {"bias": None}, {"bias": bias.half()}, {"bias": X}]
    expected = [X + bias, X, X + bias, X + X]
    for _ in range(2):
        assert all(torch.equal(scaled(X, **one), want) for one, want in zip(given, expected, strict=True))
        resolved()
    assert [len(entries) for entries in table_of(scaled).values()] == [4]


@pytest.mark.parametrize("value", [[1], (X,), {"rows": 4}, object()], ids=lambda value: type(value).__name__)
def test_what_might_hold_tensors_is_resolved_on_each_call(echo, value):
    for _ in range(2):
        assert echo(X, value=value)["value"] is value
    assert not table_of(echo)


def test_gradient_of_an_option(scaled, resolved):
    for _ in range(2):
        bias = torch.zeros(3, requires_grad=True)
        scaled(X, factor=2, bias=bias).sum().backward()
        assert torch.equal(bias.grad, torch.ones(3))
        resolved()


def test_a_bad_value_raises_the_same_on_each_call(scaled, resolved):
    assert torch.equal(scaled(X, factor=3, fast=True), 3 * X)
    resolved()
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match="scaled: factor must be a number, got '3'"):
            scaled(X, factor="3", fast=True)
        with pytest.raises(ArgumentValueError, match="scaled: fast must be one of False, True, got 'yes'"):
            scaled(X, factor=3, fast="yes")


def test_an_unknown_name_raises_the_same_on_each_call(scaled):
    for _ in range(2):
        assert torch.equal(scaled(X, factor=3), 3 * X)
        with pytest.raises(ArgumentTypeError, match=r"unknown option\(s\) facto; options known: bias, factor, fast"):
            scaled(X, facto=3)
        with pytest.raises(ArgumentTypeError, match="backend must be a string, got list"):
            scaled(X, factor=3, backend=["mine"])


def test_an_option_that_one_backend_knows(scaled, resolved):
    tilegym.register_impl("scaled", "tall")(lambda x, factor, bias, *, rows=1, fast=None: (factor, rows, fast))
    for _ in range(2):
        assert scaled(X, factor=2, rows=4, fast=True, backend="tall") == (2, 4, True)
        assert scaled(X, factor=5, rows=6, backend="tall") == (5, 6, None)
        with tilegym.use_backend("tall"):
            assert scaled(X, rows=8) == (1.0, 8, None)
        with pytest.raises(ArgumentTypeError, match=r"does not know the option\(s\) rows"):
            scaled(X, rows=4, backend="mine")
        assert torch.equal(scaled(X, factor=3), 3 * X)
    resolved()
    with tilegym.use_backend("tall"):
        assert scaled(X, rows=9) == (1.0, 9, None)


def test_supports_is_asked_of_each_value(scaled):
    tilegym.register_impl("scaled", "odd", supports=lambda x, factor, bias: None if factor % 2 else "factor is even")(
        lambda x, factor, bias, *, rows=1: ("odd", factor, rows)
    )
    for factor in (1, 1, 2, 3, 4):
        if factor % 2:
            assert scaled(X, factor=factor, rows=7, backend="odd") == ("odd", factor, 7)
        else:
            with pytest.raises(NoImplementationError, match="refuses this call: factor is even"):
                scaled(X, factor=factor, rows=7, backend="odd")


def test_the_table_stays_small(echo):
    for number in range(calls._MOST_KEYS + 20):
        assert echo(X, **{f"option_{number}": number}) == {f"option_{number}": number}
    assert len(table_of(echo)) == calls._MOST_KEYS


def test_a_stand_in_that_was_forgotten_and_made_anew_is_of_the_same_kind(echo, resolved):
    echo(X, value=1)
    resolved()
    guards.absent.cache_clear()
    assert echo(X, value=2) == {"value": 2}


def test_a_contract_by_which_options_stand_between_parameters(scaled, resolved):
    """What is given by name reaches its place, wherever the contract has it."""

    @tilegym.dispatch("between")
    def between(x: Tensor, y: Tensor, **kwargs: Any) -> Tensor: ...

    between.contract = dataclasses.replace(
        scaled.contract, canonical=lambda x, factor=1.0, y=None: (x, factor, y), hints={}
    )
    tilegym.register_impl("between", "mine", composite=True)(scaled.contract.reference)
    for _ in range(2):
        assert torch.equal(between(X, 5 * X), 6 * X)
        assert torch.equal(between(X, 5 * X, factor=2), 7 * X)
    resolved()
    assert torch.equal(between(X, 5 * X, factor=3), 8 * X)
