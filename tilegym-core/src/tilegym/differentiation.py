"""How an op is differentiated: NAME_bwd, what a forward keeps for it, and the formula that PyTorch calls.

Eager calls on plain tensors are differentiated by one `torch.autograd.Function`, which calls the implementation
directly; all others by the same formula, registered with the torch op NAME_fwd. Either way the backend is kept with the
forward, so that its own backward runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.errors import GradientError
from tilegym.guards import is_batched, is_plain, tensors_in
from tilegym.lists import flat
from tilegym.profiling import profiled, range_name
from tilegym.schemas import parts, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation

LEADING: Final = 3
"""What `Differentiable` is given before the op's own arguments."""


class Differentiation:
    """The gradient of one op with a contract that has one."""

    def __init__(self, op: Op, contract: Contract, kinds: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """Names → types: `kinds` of the canonical parameters, without `out`, `results` of the outputs."""
        assert contract.gradient is not None  # noqa: S101 - for the type checker: whoever makes one has looked
        self.op, self.gradient, self.outputs = op, contract.gradient, contract.outputs
        self.name = op.name.replace(".", "_")
        self.apply: Callable[..., Any] = Differentiable.apply
        """Calls the op on plain tensors, as autograd sees it."""
        kept = [*kinds, *results, *self.gradient.residual_names]
        known = {**kinds, **results}
        saved = {name: known.get(name, torch.Tensor) for name in self.gradient.saved}
        constants = {
            name: kind for name, kind in kinds.items() if name not in saved and torch.Tensor not in parts(kind)
        }
        differentiable = contract.outputs if self.gradient.outputs is None else self.gradient.outputs
        self.given = [*kinds]
        """Names of what a forward is given."""
        self.constants = [*constants]
        """Names of those that hold no tensor; a backward may take them."""
        self.saved_at = [kept.index(name) for name in saved]
        self.constants_at = [kept.index(name) for name in constants]
        self.inputs_at = [self.given.index(name) for name in self.gradient.inputs]
        self.outputs_at = [contract.outputs.index(name) for name in differentiable]
        self.parameters = {
            **{f"grad_{name}": results[name] for name in differentiable},
            **saved,
            **constants,
            "needs": Sequence[bool],
        }
        """Parameters of NAME_bwd → their types."""

    def define(self, register: Callable[..., Any], library: Any) -> None:
        """Define NAME_bwd and both formulas: that of NAME_fwd, and that NAME_bwd has none."""
        register(
            f"{self.name}_bwd",
            schema(self.parameters, list[torch.Tensor]),
            lambda *given, backend: self.run_node(backend, given),
            lambda *given, backend: self.fake(given),  # noqa: ARG005 - the same for all backends
        )
        qualified = f"tilegym::{self.name}"
        torch.library.register_autograd(f"{qualified}_fwd", self.formula, setup_context=self._set_up, lib=library)
        torch.library.register_autograd(f"{qualified}_bwd", self._refuse, lib=library)

    def keep(self, ctx: Any, given: tuple[Any, ...], results: tuple[Any, ...], backend: str) -> None:
        """Keep in an autograd context what the formula will need."""
        values = (*given, *results)
        ctx.save_for_backward(*[values[index] for index in self.saved_at])
        ctx.constants = [values[index] for index in self.constants_at]
        ctx.backend = backend

    def mark(self, ctx: Any, results: tuple[torch.Tensor, ...]) -> None:
        """Tell autograd which results have no gradient."""
        if len(self.outputs_at) < len(results):
            ctx.mark_non_differentiable(*[one for at, one in enumerate(results) if at not in self.outputs_at])

    def formula(self, ctx: Any, *grad_results: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient of each input of NAME_fwd from those of its results."""
        needs = [ctx.needs_input_grad[index] for index in self.inputs_at]
        grad_outputs = [grad_results[index] for index in self.outputs_at]
        return self._placed(needs, self.call_node(ctx, needs, (*grad_outputs, *ctx.saved_tensors)))

    def plain_formula(self, ctx: Any, *grad_results: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The same of `Differentiable`, without the torch op unless somebody wants to see it."""
        needs = [ctx.needs_input_grad[LEADING + index] for index in self.inputs_at]
        grad_outputs = [grad_results[index] for index in self.outputs_at]
        if torch.is_grad_enabled() or not is_plain(grad_outputs):
            return self._placed(needs, self.call_node(ctx, needs, (*grad_outputs, *ctx.saved_tensors)))
        constants = dict(zip(self.constants, ctx.constants, strict=True))
        return self._placed(
            needs, run_backward(ctx.implementation, (*grad_outputs, *ctx.saved_tensors), constants, needs)
        )

    def call_node(self, ctx: Any, needs: list[bool], tensors: Sequence[Any]) -> list[torch.Tensor]:
        """Those gradients that are needed, from NAME_bwd.

        Raises:
            GradientError: they are asked for of a batch, and PyTorch makes no loop of an op that returns a list.
        """
        if any(is_batched(tensor) for tensor in tensors_in(tensors)):
            raise GradientError(
                f"{self.op.name}: backend {ctx.backend!r} computes no gradients of a batch at once (is_grads_batched, "
                'vmap over a backward); compute them one after the other, or use backend="torch"'
            )
        node = getattr(torch.ops.tilegym, f"{self.name}_bwd").default
        found: list[torch.Tensor] = node(*tensors, *ctx.constants, needs, backend=ctx.backend)
        return found

    def _placed(self, needs: list[bool], found: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        """The gradients that were asked for, at the places of their inputs."""
        placed: list[torch.Tensor | None] = [None] * len(self.given)
        gradients = iter(found)
        for index, needed in zip(self.inputs_at, needs, strict=True):
            if needed:
                placed[index] = next(gradients)
        return tuple(placed)

    def run_node(self, backend: str, given: tuple[Any, ...]) -> list[torch.Tensor]:
        """What NAME_bwd does."""
        named = dict(zip(self.parameters, given, strict=True))
        needs = named.pop("needs")
        constants = {name: named.pop(name) for name in self.constants}
        return run_backward(registry.implementation(self.op.name, backend), tuple(named.values()), constants, needs)

    def fake(self, given: tuple[Any, ...]) -> list[torch.Tensor]:
        """What NAME_bwd returns, empty."""
        named = dict(zip(self.parameters, given, strict=True))
        like = flat([named[name] for name in self.gradient.like])
        strides = torch.preserve_format if self.gradient.dense else torch.contiguous_format
        needed = (one for one, needed in zip(like, named["needs"], strict=True) if needed)
        return [torch.empty_like(one, memory_format=strides) for one in needed]

    def _set_up(self, ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        self.keep(ctx, inputs, results, keyword_only_inputs["backend"])
        self.mark(ctx, results)

    def _refuse(self, *_: Any) -> Any:
        raise GradientError(
            f"{self.op.name}: a second derivative was asked for, and its backward has none on this backend; "
            'backend="torch" has it'
        )


def run_backward(
    implementation: Implementation, tensors: tuple[Any, ...], constants: dict[str, Any], needs: list[bool]
) -> list[torch.Tensor]:
    """Those gradients that are needed, from an implementation's own backward."""
    backward = implementation.backward
    if backward is None:
        raise GradientError(
            f"{implementation.op}: backend {implementation.backend!r} had a backward in the forward, and has none now"
        )
    taken = registry.parameters_of(backward)
    named = {name: value for name, value in (constants | {"needs": needs}).items() if name in taken}
    label = range_name(f"{implementation.op}_bwd", implementation.backend)
    result = profiled(label, backward, *tensors, **named)
    results = result if isinstance(result, tuple) else (result,)
    return [one for one, needed in zip(results, needs, strict=True) if needed]


class Differentiable(torch.autograd.Function):
    """An op on one backend as autograd sees it, of plain tensors: PyTorch's dispatcher costs several times as much."""

    @staticmethod
    def forward(
        ctx: Any, of: Differentiation, run: Callable[..., Any], implementation: Implementation, *given: Any
    ) -> Any:
        """Call `run(implementation, given)`, which returns outputs and residuals; return the outputs."""
        found = run(implementation, given)
        results = found if isinstance(found, tuple) else (found,)
        ctx.of, ctx.implementation = of, implementation
        of.keep(ctx, given, results, implementation.backend)
        outputs = results[: len(of.outputs)]
        of.mark(ctx, outputs)
        return outputs if len(outputs) > 1 else outputs[0]

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        """None for what is no input of the op, and the gradients of those that are."""
        return (*[None] * LEADING, *ctx.of.plain_formula(ctx, *grad_outputs))
