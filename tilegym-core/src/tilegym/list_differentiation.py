"""How an op is differentiated that takes or returns tensors in lists: autograd looks into none, so it sees the members.

A backward is given lists, and gives a list for an input that is one. The torch ops are given lists too: PyTorch shows
autograd their members by itself. So only `needs` and what NAME_bwd returns are flat there. As PyTorch has it for the
products of a loop, a member gets no gradient, rather than zeros, where nobody has used what depends on it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from tilegym import registry
from tilegym.differentiation import LEADING, Differentiation, run_backward
from tilegym.guards import is_plain
from tilegym.lists import filled, flat, form_of
from tilegym.schemas import OPTIONAL_TENSORS, is_tensor_list

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilegym.contract import Contract
    from tilegym.lists import Form
    from tilegym.op import Op
    from tilegym.registry import Implementation


class ListDifferentiation(Differentiation):
    """The gradient of one op that takes or returns tensors in lists."""

    def __init__(self, op: Op, contract: Contract, kinds: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """As `Differentiation`."""
        super().__init__(op, contract, kinds, results)
        self.apply = _apply
        grads = [f"grad_{contract.outputs[index]}" for index in self.outputs_at]
        self.parameters |= {name: _optional(self.parameters[name]) for name in grads}

    def keep(self, ctx: Any, given: Sequence[Any], results: Sequence[Any], backend: str) -> None:
        """As `Differentiation.keep`."""
        values = (*given, *results)
        saved = [values[index] for index in self.saved_at]
        ctx.save_for_backward(*flat(saved))
        ctx.saved_form = form_of(saved)
        ctx.constants = [values[index] for index in self.constants_at]
        ctx.backend = backend
        ctx.set_materialize_grads(False)

    def mark(self, ctx: Any, results: Sequence[Any]) -> None:
        """As `Differentiation.mark`."""
        ctx.mark_non_differentiable(*flat([one for at, one in enumerate(results) if at not in self.outputs_at]))

    def formula(self, ctx: Any, *grad_results: Any) -> tuple[Any, ...]:
        """As `Differentiation.formula`; PyTorch gives lists and takes them."""
        asked = ctx.needs_input_grad
        needs = self._needs(asked, grad_results)
        return self._in_lists(asked, needs, self.call_node(ctx, needs, self._tensors(ctx, grad_results)))

    def plain_formula(self, ctx: Any, *grad_members: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """As `Differentiation.plain_formula`, of members."""
        asked = filled(ctx.given_form, ctx.needs_input_grad[LEADING + 1 :])
        grad_results = filled(ctx.outputs_form, grad_members)
        needs, tensors = self._needs(asked, grad_results), self._tensors(ctx, grad_results)
        if torch.is_grad_enabled() or not is_plain([one for one in grad_members if one is not None]):
            found = self.call_node(ctx, needs, tensors)
        else:
            constants = dict(zip(self.constants, ctx.constants, strict=True))
            found = _run_backward(ctx.implementation, tensors, constants, needs)
        return tuple(flat(self._in_lists(asked, needs, found)))

    def call_node(self, ctx: Any, needs: list[Any], tensors: Sequence[Any]) -> list[torch.Tensor]:
        """As `Differentiation.call_node`."""
        return super().call_node(ctx, flat(needs), tensors)

    def run_node(self, backend: str, given: tuple[Any, ...]) -> list[torch.Tensor]:
        """As `Differentiation.run_node`."""
        named = dict(zip(self.parameters, given, strict=True))
        needs = filled(form_of(named[like] for like in self.gradient.like), named.pop("needs"))
        constants = {name: named.pop(name) for name in self.constants}
        return _run_backward(registry.implementation(self.op.name, backend), [*named.values()], constants, needs)

    def _needs(self, asked: Sequence[Any], grad_results: Sequence[Any]) -> list[Any]:
        """What a backward is told to compute."""
        grads = [grad_results[index] for index in self.outputs_at]
        return [_needed(asked[index], grads) for index in self.inputs_at]

    def _tensors(self, ctx: Any, grad_results: Sequence[Any]) -> list[Any]:
        """What a backward is given."""
        return [*(grad_results[index] for index in self.outputs_at), *filled(ctx.saved_form, ctx.saved_tensors)]

    def _in_lists(self, asked: Sequence[Any], needs: list[Any], found: list[torch.Tensor]) -> tuple[Any, ...]:
        """The gradients that are needed, at the places of their inputs and in lists as these are."""
        gradients = iter(found)
        of_inputs = filled(form_of(needs), [next(gradients) if needed else None for needed in flat(needs)])
        placed = filled(form_of(asked), itertools.repeat(None))
        for index, gradient in zip(self.inputs_at, of_inputs, strict=True):
            placed[index] = gradient
        return tuple(placed)


def _optional(kind: Any) -> Any:
    """The type of a gradient that may be left out, or whose members may."""
    return OPTIONAL_TENSORS if is_tensor_list(kind) else kind | None


def _needed(asked: Any, grads: Sequence[Any]) -> Any:
    """Whether a gradient is asked for and something used depends on it; of a list, the answer for each member."""
    if isinstance(asked, bool):
        return asked and any(grad is not None for grad in flat(grads))
    of_members = zip(*[grad if isinstance(grad, list) else [grad] * len(asked) for grad in grads], strict=True)
    return [one and any(grad is not None for grad in own) for one, own in zip(asked, of_members, strict=True)]


def _run_backward(
    implementation: Implementation, tensors: Sequence[Any], constants: dict[str, Any], needs: list[Any]
) -> list[torch.Tensor]:
    """As `run_backward`, which leaves out what is False and lists without members."""
    found = run_backward(implementation, (*tensors,), constants, needs)
    asked = flat([needed for needed in needs if needed])
    return [one for one, needed in zip(flat(found), asked, strict=True) if needed]


class DifferentiableMembers(torch.autograd.Function):
    """As `Differentiable`, which sees no list: it is given the members, and gives those of what the op returns."""

    @staticmethod
    def forward(
        ctx: Any,
        of: ListDifferentiation,
        run: Callable[..., Any],
        implementation: Implementation,
        form: Form,
        *members: Any,
    ) -> Any:
        """The members of the outputs, and last their form."""
        given = filled(form, members)
        found = run(implementation, tuple(given))
        results = found if isinstance(found, tuple) else (found,)
        ctx.of, ctx.implementation, ctx.given_form = of, implementation, form
        of.keep(ctx, given, results, implementation.backend)
        outputs = results[: len(of.outputs)]
        of.mark(ctx, outputs)
        ctx.outputs_form = form_of(outputs)
        return (*flat(outputs), ctx.outputs_form)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """As `Differentiable.backward`; the last output, a form, has no gradient."""
        return (*[None] * (LEADING + 1), *ctx.of.plain_formula(ctx, *grad_outputs[:-1]))


def _apply(of: ListDifferentiation, run: Callable[..., Any], implementation: Implementation, *given: Any) -> Any:
    """As `Differentiable.apply`."""
    *members, form = DifferentiableMembers.apply(of, run, implementation, form_of(given), *flat(given))  # type: ignore[no-untyped-call]  # untyped in torch
    outputs = filled(form, members)
    return tuple(outputs) if len(outputs) > 1 else outputs[0]
