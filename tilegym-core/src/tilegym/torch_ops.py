"""Ops as PyTorch sees them, `torch.ops.tilegym.NAME`, for calls that somebody else wants to see, change or go back over.

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
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.errors import GradientError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilegym.contract import Contract, Gradient
    from tilegym.op import Op

_OUT: Final = "out"
_lock = threading.RLock()
_library: Any = None  # a torch.library.Library, once needed; its methods are untyped
_defined: dict[str, Callable[..., Any]] = {}


def call_op(op: Op, contract: Contract, backend: str, canonical: tuple[Any, ...]) -> Any:
    """Call an op on a backend through PyTorch's dispatcher."""
    named = dict(zip(op.canonical_parameters, canonical, strict=True))
    out = named.pop(_OUT, None)
    result = torch_op(op, contract)(*named.values(), backend=backend)
    return result if out is None else out.copy_(result)


def torch_op(op: Op, contract: Contract) -> Callable[..., Any]:
    """`torch.ops.tilegym.NAME`, defined on first use."""
    with _lock:
        if op.name not in _defined:
            _defined[op.name] = _Definition(op, contract).define()
        return _defined[op.name]


class _Definition:
    """The torch ops of one contract."""

    def __init__(self, op: Op, contract: Contract) -> None:
        self.op, self.contract = op, contract
        self.name = op.name.replace(".", "_")
        self.names = [name for name in op.canonical_parameters if name != _OUT]
        self.kinds = typing.get_type_hints(contract.canonical)

    def define(self) -> Callable[..., Any]:
        """Define all, and return NAME."""
        contract = self.contract
        plain = self._register(
            self.name,
            self._schema({name: self.kinds[name] for name in self.names}, _result_of(contract)),
            lambda *given, backend: self._run(backend, given, residuals=False),
            lambda *given, backend: contract.fake(*self._complete(given)),  # noqa: ARG005 - the same for all backends
        )
        if contract.gradient is not None:
            self._define_gradient(plain, contract.gradient)
        return plain

    def _define_gradient(self, plain: Callable[..., Any], gradient: Gradient) -> None:
        residuals = (torch.Tensor,) * len(gradient.residual_names)
        forward = self._register(
            f"{self.name}_fwd",
            self._schema(
                {name: self.kinds[name] for name in self.names},
                tuple[(_result_of(self.contract), *residuals)] if residuals else _result_of(self.contract),  # type: ignore[misc]  # a type made at run time
            ),
            lambda *given, backend: self._run(backend, given, residuals=True),
            lambda *given, backend: self._fake_forward(given, gradient),  # noqa: ARG005 - the same for all backends
        )
        constants = [name for name in self.names if name not in gradient.saved and torch.Tensor not in _parts(self.kinds[name])]
        saved = {name: self.kinds.get(name, torch.Tensor) for name in gradient.saved}
        self._register(
            f"{self.name}_bwd",
            self._schema(
                {"grad_output": torch.Tensor, **saved, **{name: self.kinds[name] for name in constants}, "needs": list[bool]},
                list[torch.Tensor],
            ),
            lambda *given, backend: self._run_backward(backend, given, gradient, constants),
            lambda *given, backend: self._fake_backward(given, gradient),  # noqa: ARG005 - the same for all backends
        )
        _Autograd(self, gradient, constants).register()

        def differentiable(*given: Any, backend: str) -> Any:
            if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in given):
                result = forward(*given, backend=backend)
                return result[0] if residuals else result
            with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001 - how autograd kernels in Python go on
                return plain(*given, backend=backend)

        _library.impl(self.name, differentiable, "Autograd")

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

    def _schema(self, parameters: Mapping[str, Any], result: Any) -> str:
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

    def _complete(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """All canonical arguments: `out=None` is put back in its place."""
        values = iter(given)
        return tuple(None if name == _OUT else next(values) for name in self.op.canonical_parameters)

    def _run(self, backend: str, given: tuple[Any, ...], *, residuals: bool) -> Any:
        chosen = registry.implementation(self.op.name, backend)
        positional, named = self.op.arguments(chosen, self._complete(given))
        function = chosen.forward if residuals and chosen.forward is not None else chosen.function
        return function(*positional, **named)

    def _fake_forward(self, given: tuple[Any, ...], gradient: Gradient) -> Any:
        canonical = self._complete(given)
        result = self.contract.fake(*canonical)
        return result if gradient.residuals is None else (result, *gradient.residuals(*canonical))

    def _run_backward(
        self, backend: str, given: tuple[Any, ...], gradient: Gradient, constants: list[str]
    ) -> list[torch.Tensor]:
        backward = registry.implementation(self.op.name, backend).backward
        if backward is None:
            raise GradientError(f"{self.op.name}: backend {backend!r} has no backward any more; it had one in the forward")
        tensors = given[: 1 + len(gradient.saved)]
        named = dict(zip([*constants, "needs"], given[len(tensors) :], strict=True))
        taken = inspect.signature(backward).parameters
        result = backward(*tensors, **{name: value for name, value in named.items() if name in taken})
        return [
            one
            for one, needed in zip(result if isinstance(result, tuple) else (result,), named["needs"], strict=True)
            if needed
        ]

    def _fake_backward(self, given: tuple[Any, ...], gradient: Gradient) -> list[torch.Tensor]:
        saved = dict(zip(gradient.saved, given[1:], strict=False))
        like = [saved[name] for name, needed in zip(gradient.like, given[-1], strict=True) if needed]
        return [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in like]


class _Autograd:
    """The formula of NAME_fwd, and that NAME_bwd has none."""

    def __init__(self, definition: _Definition, gradient: Gradient, constants: list[str]) -> None:
        self.definition, self.gradient, self.constants = definition, gradient, constants
        self.qualified = f"tilegym::{definition.name}"

    def register(self) -> None:
        """Register both."""
        torch.library.register_autograd(
            f"{self.qualified}_fwd", self._backward, setup_context=self._setup, lib=_library
        )
        torch.library.register_autograd(f"{self.qualified}_bwd", self._refuse, lib=_library)

    def _setup(self, ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        named = dict(zip(self.definition.names, inputs, strict=True))
        named |= dict(zip(("output", *self.gradient.residual_names), results, strict=True))
        ctx.save_for_backward(*(named[name] for name in self.gradient.saved))
        ctx.constants = [named[name] for name in self.constants]
        ctx.backend = keyword_only_inputs["backend"]

    def _backward(self, ctx: Any, grad_output: torch.Tensor, *_: Any) -> tuple[torch.Tensor | None, ...]:
        names = self.definition.names
        wanted = dict(zip(names, ctx.needs_input_grad, strict=False))
        needs = [wanted[name] for name in self.gradient.inputs]
        bwd = getattr(torch.ops.tilegym, f"{self.definition.name}_bwd").default
        found = iter(bwd(grad_output, *ctx.saved_tensors, *ctx.constants, needs, backend=ctx.backend))
        gradients = {name: next(found) for name, needed in zip(self.gradient.inputs, needs, strict=True) if needed}
        return tuple(gradients.get(name) for name in names)

    def _refuse(self, *_: Any) -> Any:
        raise GradientError(
            f"{self.definition.op.name}: a second derivative was asked for, and its backward has none on this backend; "
            'backend="torch" has it'
        )


def _result_of(contract: Contract) -> Any:
    return typing.get_type_hints(contract.reference).get("return", torch.Tensor)


def _parts(kind: Any) -> set[Any]:
    return set(typing.get_args(kind)) or {kind}


def _schema_type(kind: Any) -> Any:
    """The annotation as `infer_schema` wants it: ints in lists, and nothing optional about lists."""
    parts = _parts(kind)
    if kind == list[bool]:
        return typing.Sequence[bool]
    if any(typing.get_origin(part) is not None for part in parts | {kind}) and torch.Tensor not in parts:
        return typing.Sequence[int]
    return typing.Optional[torch.Tensor] if parts == {torch.Tensor, type(None)} else kind  # noqa: UP045 - what torch reads
