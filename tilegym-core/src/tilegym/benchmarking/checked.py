"""Calls to time, made after the result of one was checked against float64.

The check is that of the tests: the contract's own reference and error bound, on the whole result or, of a large call,
on a part (`parts.py`). A peer is held to the bound of the norm alone: it may round in between, as users' own code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tilegym import registry
from tilegym.benchmarking.parts import part_to_check
from tilegym.errors import WrongAnswerError
from tilegym.lists import each
from tilegym.sharding import OUTPUT
from tilegym.testing import measure
from tilegym.testing.accuracy import by_name, tensors_of
from tilegym.testing.gradients import differentiable_outputs, inputs_of, measure_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.results import Direction
    from tilegym.contract import Contract, Gradient
    from tilegym.op import Op
    from tilegym.testing import Accuracy


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Calls that do the same on inputs of their own, and are right."""

    calls: Sequence[Callable[[], Any]]
    norm_error: float
    """The largest of what the first gives."""


def calls_of(case: Case, direction: Direction, backend: str, sets: Sequence[dict[str, Any]]) -> Calls:
    """A call of one direction alone for each set of arguments, after what the first gives was checked.

    Raises:
        WrongAnswerError: it is wrong; the message has the errors beside their bounds.
    """
    if direction == "forward":
        return checked_calls(case.op, case.contract, backend, sets)
    return _backward(case, backend, sets)


def checked_calls(op: Op, contract: Contract, backend: str, sets: Sequence[dict[str, Any]]) -> Calls:
    """A call for each set of arguments, after the result of the first was checked.

    Raises:
        WrongAnswerError: it is wrong; the message has the errors beside their bounds.
    """
    calls = [partial(op.function, **arguments, backend=backend) for arguments in sets]
    result = calls[0]()
    part = part_to_check(op, contract, sets[0])
    outputs = tensors_of(result)
    if len(outputs) == len(contract.outputs):  # else they are those of a list, which no way to split is for
        outputs = [part.of(one, name, OUTPUT) for name, one in zip(contract.outputs, outputs, strict=True)]
    try:
        found = measure(contract, dict(part.arguments), outputs)
    except AssertionError as error:  # it has another shape
        raise WrongAnswerError(str(error)) from None
    return Calls(calls=calls, norm_error=_check(by_name(contract, found), backend))


def _backward(case: Case, backend: str, sets: Sequence[dict[str, Any]]) -> Calls:
    """A call of the backward alone for each set of arguments, after the gradients of the first were checked."""
    gradient = case.contract.gradient
    assert gradient is not None, "the plan has backward entries for ops with a gradient alone"  # noqa: S101
    calls: list[Callable[[], Any]] = []
    norm_error = 0.0
    for arguments in sets:
        # Of the first set, which is checked, a copy: some peers write their gradients over their inputs.
        inputs = arguments.keys() & {*gradient.inputs}
        given = arguments | {name: each(partial(_cut, copied=not calls), arguments[name]) for name in inputs}
        leaves = {name: one.requires_grad_() for name, one in inputs_of(gradient, given).items()}
        result = case.op.function(**given, backend=backend)
        outputs = differentiable_outputs(case.contract, result)
        generator = torch.Generator(outputs[0].device).manual_seed(1)
        grads = tuple(
            torch.randn(one.shape, dtype=one.dtype, device=one.device, generator=generator) for one in outputs
        )
        call = partial(torch.autograd.grad, outputs, [*leaves.values()], grads, retain_graph=True)
        if not calls:
            norm_error = _check_gradients(case, gradient, backend, arguments, outputs, leaves, grads)
        calls.append(call)
    return Calls(calls=calls, norm_error=norm_error)


def _cut(value: Any, *, copied: bool) -> Any:
    """A tensor cut from the graph, and copied if asked for; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone() if copied else value.detach()


def _check_gradients(
    case: Case,
    gradient: Gradient,
    backend: str,
    arguments: dict[str, Any],
    outputs: tuple[Tensor, ...],
    leaves: dict[str, Tensor],
    grads: tuple[Tensor, ...],
) -> float:
    """Check the gradients of a part, from gradients of the outputs that are 0 elsewhere, since parts share inputs."""
    part = part_to_check(case.op, case.contract, arguments)
    names = gradient.outputs or case.contract.outputs
    wholes = of_part = grads
    if part.cuts:  # there are none of lists, which no way to split is for
        wholes = tuple(map(torch.zeros_like, grads))
        of_part = tuple(part.of(grad, name, OUTPUT) for name, grad in zip(names, grads, strict=True))
        for name, whole, grad in zip(names, wholes, of_part, strict=True):
            part.of(whole, name, OUTPUT).copy_(grad)
    found = torch.autograd.grad(outputs, [*leaves.values()], wholes, retain_graph=True)
    accuracies = measure_gradients(
        case.contract,
        gradient,
        dict(part.arguments),
        of_part,
        {name: part.of(one, name) for name, one in zip(leaves, found, strict=True)},
    )
    return _check({f"gradient of {name}": accuracy for name, accuracy in accuracies.items()}, backend)


def _check(accuracies: Mapping[str, Accuracy], backend: str) -> float:
    """The largest norm error; WrongAnswerError unless all are within the bounds that the backend is held to."""
    peer = registry.backends()[backend].peer
    for name, accuracy in accuracies.items():
        if not (accuracy.norm_error <= accuracy.norm_bound if peer else accuracy.ok):
            raise WrongAnswerError(f"{name}: {accuracy}")
    return max((accuracy.norm_error for accuracy in accuracies.values()), default=0.0)
