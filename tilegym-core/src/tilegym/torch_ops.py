"""Ops as PyTorch sees them, `torch.ops.tilegym.NAME`, for calls that others want to see, change or differentiate.

A subclass, a dispatch mode, a fake or meta tensor, a negative view, autograd: PyTorch's own dispatcher knows what to do
with each, given an op with a schema, a fake and a backward. Per contract, on first need, from its canonical signature:

    NAME(canonical..., *, backend)                  → outputs
    NAME_fwd(canonical..., *, backend)              → outputs and residuals; has the gradient
    NAME_bwd(grad_output, saved..., needs, *, backend) → a gradient for each input that needs one

The backend is a constant argument of all three, so that a backward runs where its forward ran.
"""

from __future__ import annotations

import inspect
import threading
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.errors import GradientError, NoImplementationError, RegistrationError
from tilegym.selection import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilegym.contract import Contract, Gradient
    from tilegym.op import Op

OUT: Final = "out"
_lock = threading.RLock()
_library: Any = None  # a torch.library.Library, once needed; its methods are untyped
_defined: dict[str, tuple[_Definition, Callable[..., Any]]] = {}


def call_op(op: Op, contract: Contract, backend: str, canonical: tuple[Any, ...]) -> Any:
    """Call an op on a backend through PyTorch's dispatcher."""
    named = dict(zip(op.canonical_parameters, canonical, strict=True))
    out = named.pop(OUT, None)
    result = torch_op(op, contract)(*named.values(), backend=backend)
    return result if out is None else out.copy_(result)


def torch_op(op: Op, contract: Contract) -> Callable[..., Any]:
    """`torch.ops.tilegym.NAME`, defined on first use."""
    with _lock:
        if op.name not in _defined:
            definition = _Definition(op, contract)
            _defined[op.name] = definition, definition.define()
        definition, overload = _defined[op.name]
        if definition.contract is not contract:
            definition.follow(op, contract)
        return overload


class _Definition:
    """The torch ops of one contract."""

    def __init__(self, op: Op, contract: Contract) -> None:
        self.op, self.contract = op, contract
        self.name = op.name.replace(".", "_")
        self.kinds = {name: kind for name, kind in _hints(contract.canonical).items() if name not in (OUT, "return")}
        """Canonical parameters, without `out` → their types."""
        self.result = _hints(contract.reference).get("return", torch.Tensor)
        self.backward = None if contract.gradient is None else _Backward(self, contract.gradient)

    def follow(self, op: Op, contract: Contract) -> None:
        """From now on, speak for an op that was declared anew under the same name, as in a notebook's cell.

        Raises:
            RegistrationError: PyTorch would need other schemas, and those cannot be replaced.
        """
        other = _Definition(op, contract)
        if other.schemas != self.schemas:
            raise RegistrationError(
                f"{op.name} was declared anew with other parameters, result or gradient, and PyTorch already has "
                f"torch.ops.tilegym.{self.name} as declared first; give it another name, or begin a new process"
            )
        self.op, self.contract = op, contract
        if self.backward is not None and contract.gradient is not None:
            self.backward.op, self.backward.gradient = op, contract.gradient

    @property
    def schemas(self) -> tuple[Any, ...]:
        """All that the schemas and formulas are made of."""
        one = self.contract.gradient
        gradient = None if one is None else (one.inputs, one.like, one.saved, one.residual_names)
        return tuple(self.kinds.items()), self.result, gradient

    def define(self) -> Callable[..., Any]:
        """Define all, and return NAME."""
        plain = self._register(
            self.name,
            _schema(self.kinds, self.result),
            lambda *given, backend: self._run(backend, given),
            lambda *given, backend: self.contract.fake(*self._complete(given)),  # noqa: ARG005 - the same for all backends
        )
        gradient = self.contract.gradient
        if gradient is not None and self.backward is not None:
            forward = self._define_forward(gradient)
            self.backward.define(self._register)
            several = bool(gradient.residual_names)

            def differentiable(*given: Any, backend: str) -> Any:
                if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in given):
                    result = forward(*given, backend=backend)
                    return result[0] if several else result
                with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001 - how autograd kernels in Python go on
                    return plain(*given, backend=backend)

            _library.impl(self.name, differentiable, "Autograd")
        return plain

    def _define_forward(self, gradient: Gradient) -> Callable[..., Any]:
        residuals = (torch.Tensor,) * len(gradient.residual_names)
        results = tuple.__class_getitem__((self.result, *residuals)) if residuals else self.result
        return self._register(
            f"{self.name}_fwd",
            _schema(self.kinds, results),
            lambda *given, backend: self._run(backend, given, residuals=True),
            lambda *given, backend: self._fake_forward(given),  # noqa: ARG005 - the same for all backends
        )

    def _register(
        self, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]
    ) -> Callable[..., Any]:
        global _library  # noqa: PLW0603 - one library per process, as torch wants it
        if _library is None:
            _library = torch.library.Library("tilegym", "FRAGMENT")  # type: ignore[no-untyped-call]  # untyped in torch
        _library.define(name + schema)
        _library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"tilegym::{name}", fake, lib=_library)
        overload: Callable[..., Any] = getattr(torch.ops.tilegym, name).default
        return overload

    def _complete(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """All canonical arguments: `out=None` is put back in its place."""
        values = iter(given)
        return tuple(None if name == OUT else next(values) for name in self.op.canonical_parameters)

    def _run(self, backend: str, given: tuple[Any, ...], *, residuals: bool = False) -> Any:
        chosen = registry.implementation(self.op.name, backend)
        canonical = self._complete(given)
        reason = refusal(chosen, *canonical)  # of a compiled call nobody has asked it yet
        if reason is not None:
            raise NoImplementationError(f"{self.op.name}: backend {backend!r} refuses this call: {reason}")
        positional, named = self.op.arguments(chosen, canonical)
        function = chosen.forward if residuals and chosen.forward is not None else chosen.function
        return function(*positional, **named)

    def _fake_forward(self, given: tuple[Any, ...]) -> Any:
        canonical, gradient = self._complete(given), self.contract.gradient
        result = self.contract.fake(*canonical)
        return result if gradient is None or gradient.residuals is None else (result, *gradient.residuals(*canonical))


class _Backward:
    """NAME_bwd, the formula of NAME_fwd that calls it, and that it has none itself."""

    def __init__(self, definition: _Definition, gradient: Gradient) -> None:
        kinds = definition.kinds
        self.gradient, self.op, self.name, self.names = gradient, definition.op, definition.name, [*kinds]
        self.saved = {name: kinds.get(name, torch.Tensor) for name in gradient.saved}
        self.constants = {
            name: kind for name, kind in kinds.items() if name not in self.saved and torch.Tensor not in _parts(kind)
        }
        """Canonical parameters that hold no tensor; a backward may take them by name."""

    def define(self, register: Callable[..., Any]) -> None:
        """Define the op and both formulas."""
        parameters = {"grad_output": torch.Tensor, **self.saved, **self.constants, "needs": Sequence[bool]}
        register(
            f"{self.name}_bwd",
            _schema(parameters, list[torch.Tensor]),
            lambda *given, backend: self._run(backend, given),
            lambda *given, backend: self._fake(given),  # noqa: ARG005 - the same for all backends
        )
        qualified = f"tilegym::{self.name}"
        torch.library.register_autograd(f"{qualified}_fwd", self._formula, setup_context=self._keep, lib=_library)
        torch.library.register_autograd(f"{qualified}_bwd", self._refuse, lib=_library)

    def _run(self, backend: str, given: tuple[Any, ...]) -> list[torch.Tensor]:
        backward = registry.implementation(self.op.name, backend).backward
        if backward is None:
            raise GradientError(f"{self.op.name}: backend {backend!r} had a backward in the forward, and has none now")
        tensors, more = given[: 1 + len(self.saved)], given[1 + len(self.saved) :]
        named = dict(zip([*self.constants, "needs"], more, strict=True))
        taken = registry.parameters_of(backward)
        result = backward(*tensors, **{name: value for name, value in named.items() if name in taken})
        results = result if isinstance(result, tuple) else (result,)
        return [one for one, needed in zip(results, named["needs"], strict=True) if needed]

    def _fake(self, given: tuple[Any, ...]) -> list[torch.Tensor]:
        saved = dict(zip(self.saved, given[1:], strict=False))
        like = [saved[name] for name, needed in zip(self.gradient.like, given[-1], strict=True) if needed]
        return [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in like]

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        named = dict(zip(self.names, inputs, strict=True))
        named |= dict(zip(("output", *self.gradient.residual_names), results, strict=True))
        ctx.save_for_backward(*(named[name] for name in self.saved))
        ctx.constants = [named[name] for name in self.constants]
        ctx.backend = keyword_only_inputs["backend"]

    def _formula(self, ctx: Any, grad_output: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        wanted = dict(zip(self.names, ctx.needs_input_grad, strict=False))
        needs = [wanted[name] for name in self.gradient.inputs]
        node = getattr(torch.ops.tilegym, f"{self.name}_bwd").default
        found = iter(node(grad_output, *ctx.saved_tensors, *ctx.constants, needs, backend=ctx.backend))
        gradients = {name: next(found) for name, needed in zip(self.gradient.inputs, needs, strict=True) if needed}
        return tuple(gradients.get(name) for name in self.names)

    def _refuse(self, *_: Any) -> Any:
        raise GradientError(
            f"{self.op.name}: a second derivative was asked for, and its backward has none on this backend; "
            'backend="torch" has it'
        )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(function)


def _parts(kind: Any) -> set[Any]:
    return set(typing.get_args(kind)) or {kind}


def _schema(parameters: Mapping[str, Any], result: Any) -> str:
    """The schema of an op with these parameters and `backend`: `(Tensor x, *, str backend) -> Tensor`."""
    found = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=_schema_type(kind))
        for name, kind in parameters.items()
    ]
    found.append(inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, annotation=str))

    def prototype() -> None:
        """Only its signature counts."""

    prototype.__signature__ = inspect.Signature(found, return_annotation=result)  # type: ignore[attr-defined]  # read by infer_schema
    return torch.library.infer_schema(prototype, mutates_args=())


def _schema_type(kind: Any) -> Any:
    """The annotation as `infer_schema` wants it: lists of ints plain and never optional."""
    parts = _parts(kind)
    if parts == {torch.Tensor, type(None)}:
        return typing.Optional[torch.Tensor]  # noqa: UP045 - what infer_schema reads
    if kind == Sequence[bool] or torch.Tensor in parts:
        return kind
    return Sequence[int] if any(typing.get_origin(part) is not None for part in parts | {kind}) else kind


def register_torch_ops() -> None:
    """Define the torch ops of every op that has a contract; `torch.export.load` in a fresh process needs them."""
    for name in registry.op_names():
        op = registry.get_op(name)
        if op.contract is not None:
            torch_op(op, op.contract)
