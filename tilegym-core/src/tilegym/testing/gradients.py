"""The gradients of an op, beside those of its contract's float64 reference.

The bound is that of `accuracy`, with A the gradient on absolute values, as the contract gives it. Where a backward
starts from the op's own rounded output, u(float32) becomes the unit roundoff of the output's dtype, and what
underflowed there is multiplied by grad_output. A gradient can vanish where its terms do not (that of a norm over one
element), so the norm's bound too has a term in A.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from tilegym.testing.accuracy import Accuracy, compare, double, unit_roundoff

if TYPE_CHECKING:
    from torch import Tensor

    from tilegym.contract import Contract, Gradient


def measure_gradients(
    contract: Contract, gradient: Gradient, arguments: dict[str, Any], grad_output: Tensor, gradients: dict[str, Tensor]
) -> dict[str, Accuracy]:
    """The accuracy of gradients, each by the name of its input.

    Args:
        contract: the op's.
        gradient: the contract's.
        arguments: the call's, by name.
        grad_output: the gradient of the op's output.
        gradients: what the backend gave.
    """
    semantic = {name: value for name, value in arguments.items() if name not in contract.hints}
    names = inspect.signature(contract.canonical).parameters
    canonical = dict(zip(names, map(double, contract.canonical(**semantic)), strict=True))
    inputs = {name: canonical[name].clone().requires_grad_() for name in gradients}
    result = contract.reference(*(canonical | inputs).values())
    expected = torch.autograd.grad(result, [*inputs.values()], grad_output.double())
    scales = dict(
        zip(gradient.inputs, gradient.magnitude(grad_output.double().abs(), *canonical.values()), strict=True)
    )
    rounded = "output" in gradient.saved
    unit = unit_roundoff(grad_output.dtype if rounded else torch.float32)
    largest = grad_output.abs().max().item() if rounded and grad_output.numel() else 0.0
    found = {}
    for (name, got), want in zip(gradients.items(), expected, strict=True):
        terms = max(1, contract.reduction(*canonical.values()), result.numel() // max(1, want.numel()))
        found[name] = compare(got, want, scales[name], terms, unit=unit, cancels=True, underflow=1 + 2 * largest)
    return found
