"""The gradients of an op, beside those of its contract's float64 reference.

The bound is that of `accuracy`, with A the gradient on absolute values, as the contract gives it. Where a backward
starts from the op's own rounded output, or from what is rounded alike, u(float32) becomes the unit roundoff of the
output's dtype, and what underflowed there is multiplied by grad_output. A gradient can vanish where its terms do not
(that of a norm over one element), so the norm's bound too has a term in A.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from tilegym.testing.accuracy import Accuracy, compare, double, tensors_of, unit_roundoff

if TYPE_CHECKING:
    from torch import Tensor

    from tilegym.contract import Contract, Gradient


def measure_gradients(
    contract: Contract,
    gradient: Gradient,
    arguments: dict[str, Any],
    grad_outputs: tuple[Tensor, ...],
    gradients: dict[str, Tensor],
) -> dict[str, Accuracy]:
    """The accuracy of gradients, each by the name of its input.

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
    inputs = {name: canonical[name].clone().requires_grad_() for name in gradients}
    results = differentiable_outputs(contract, contract.reference(*(canonical | inputs).values()))
    expected = torch.autograd.grad(results, [*inputs.values()], [grad.double() for grad in grad_outputs])
    magnitudes = gradient.magnitude(*(grad.double().abs() for grad in grad_outputs), *canonical.values())
    scales = dict(zip(gradient.inputs, magnitudes, strict=True))
    if gradient.reduction is None:
        reduction, elements = contract.reduction(*canonical.values()), max(result.numel() for result in results)
        terms = {name: max(reduction, elements // max(1, one.numel())) for name, one in inputs.items()}
    else:
        terms = dict(zip(gradient.inputs, gradient.reduction(*canonical.values()), strict=True))
    rounded = not {*contract.outputs}.isdisjoint(gradient.saved)
    if gradient.rounded is not None:
        rounded = gradient.rounded(*canonical.values())
    unit = unit_roundoff(grad_outputs[0].dtype if rounded else torch.float32)
    largest = max(grad.double().abs().max().item() if rounded and grad.numel() else 0.0 for grad in grad_outputs)
    return {
        name: compare(got, want, scales[name], max(1, terms[name]), unit=unit, cancels=True, underflow=1 + 2 * largest)
        for (name, got), want in zip(gradients.items(), expected, strict=True)
    }


def differentiable_outputs(contract: Contract, result: Any) -> tuple[Tensor, ...]:
    """Of an op's result, the outputs that have a gradient."""
    named = dict(zip(contract.outputs, tensors_of(result), strict=True))
    gradient = contract.gradient
    return tuple(named[name] for name in (gradient and gradient.outputs) or contract.outputs)
