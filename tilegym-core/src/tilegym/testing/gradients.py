"""The gradients of an op, beside those of its contract's float64 reference.

The bound is that of `accuracy`, with A the gradient on absolute values, as the contract gives it. Where a backward
starts from the op's own rounded output, or from what is rounded alike, u(float32) becomes the unit roundoff of the
output's dtype, and what underflowed there is multiplied by grad_output. A gradient can vanish where its terms do not
(that of a norm over one element), so the norm's bound too has a term in A.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tilegym.guards import tensors_in
from tilegym.lists import filled, flat, form_of
from tilegym.testing.accuracy import Accuracy, compare, double, outputs_of, unit_of_sums, unit_roundoff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from tilegym.contract import Contract, Gradient


def measure_gradients(
    contract: Contract,
    gradient: Gradient,
    arguments: dict[str, Any],
    grad_outputs: tuple[Tensor, ...],
    gradients: dict[str, Tensor],
) -> dict[str, Accuracy]:
    """The accuracy of gradients, each by the name of its input, as `inputs_of` names them.

    Args:
        contract: the op's.
        gradient: the contract's.
        arguments: the call's, by name.
        grad_outputs: the gradients of those outputs that have one.
        gradients: what the backend gave.
    """
    semantic = {name: value for name, value in arguments.items() if name not in contract.hints}
    names = inspect.signature(contract.reference).parameters
    canonical = dict(zip(names, map(double, contract.canonical(**semantic)), strict=True))
    copies = canonical | {name: double(canonical[name]) for name in gradient.inputs}
    named = inputs_of(gradient, copies)
    inputs = {name: named[name].requires_grad_() for name in gradients}
    outputs = _differentiable(contract, contract.reference(*copies.values()))
    results = flat(outputs)
    expected = torch.autograd.grad(results, [*inputs.values()], [grad.double() for grad in grad_outputs])
    sizes = filled(form_of(outputs), [grad.double().abs() for grad in grad_outputs])
    magnitudes = gradient.magnitude(*sizes, *canonical.values())
    scales = inputs_of(gradient, dict(zip(gradient.inputs, magnitudes, strict=True)))
    if gradient.reduction is None:
        reduction, elements = contract.reduction(*canonical.values()), max(result.numel() for result in results)
        terms = {name: max(reduction, elements // max(1, one.numel())) for name, one in inputs.items()}
    else:
        reductions = zip(gradient.inputs, gradient.reduction(*canonical.values()), strict=True)
        terms = {one: many for name, many in reductions for one in members(name, canonical[name])}
    rounded = not {*contract.outputs}.isdisjoint(gradient.saved)
    if gradient.rounded is not None:
        rounded = gradient.rounded(*canonical.values())
    sums = unit_of_sums(next(tensors_in(arguments.values())).dtype)
    unit = max(unit_roundoff(grad_outputs[0].dtype), sums) if rounded else sums
    largest = max(grad.double().abs().max().item() if rounded and grad.numel() else 0.0 for grad in grad_outputs)
    measured = partial(compare, unit=unit, sums=sums, cancels=True, underflow=1 + 2 * largest)
    return {
        name: measured(got, want, scales[name], max(1, terms[name]))
        for (name, got), want in zip(gradients.items(), expected, strict=True)
    }


def differentiable_outputs(contract: Contract, result: Any) -> tuple[Tensor, ...]:
    """Of an op's result, the outputs that have a gradient, or their members."""
    return tuple(flat(_differentiable(contract, result)))


def _differentiable(contract: Contract, result: Any) -> list[Any]:
    """The same, with lists as they are."""
    named, gradient = outputs_of(contract, result), contract.gradient
    return [named[name] for name in (gradient and gradient.outputs) or contract.outputs]


def inputs_of(gradient: Gradient, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Of some arguments, the tensors that have a gradient, by name; those in a list have a number each: `x[0]`."""
    return {key: one for name in gradient.inputs for key, one in members(name, arguments.get(name)).items()}


def members(name: str, value: Any) -> dict[str, Tensor]:
    """A tensor by its name, those of a list by name and number; of any other value, nothing."""
    if isinstance(value, torch.Tensor):
        return {name: value}
    return {f"{name}[{index}]": one for index, one in enumerate(tensors_in([value]))}
