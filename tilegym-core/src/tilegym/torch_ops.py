"""Ops as PyTorch sees them, `torch.ops.tilegym.NAME`, for calls that others want to see, change or differentiate.

A subclass, a dispatch mode, a fake or meta tensor, a negative view, autograd: PyTorch's own dispatcher knows what to do
with each, given an op with a schema, a fake and a backward. Per contract, on first need, from its canonical signature:

    NAME(canonical..., *, backend)                  → outputs
    NAME_fwd(canonical..., *, backend)              → outputs and residuals; has the gradient
    NAME_bwd(grad_outputs..., saved..., needs, *, backend) → a gradient for each input that needs one
    NAME_out(canonical..., out, *, backend)         → nothing; writes out

The backend is a constant argument of each, so that a backward runs where its forward ran.
"""

from __future__ import annotations

import threading
import typing
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import flops, registry
from tilegym.differentiation import Differentiation
from tilegym.entries import told
from tilegym.errors import NoImplementationError, RegistrationError
from tilegym.guards import tensors_in
from tilegym.list_differentiation import ListDifferentiation
from tilegym.schemas import hints, is_tensor_list, schema
from tilegym.selection import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation

OUT: Final = "out"
_lock = threading.RLock()
_library: Any = None  # a torch.library.Library, once needed; its methods are untyped
_defined: dict[str, _Definition] = {}


def call_op(op: Op, contract: Contract, backend: str, canonical: tuple[Any, ...]) -> Any:
    """Call an op on a backend through PyTorch's dispatcher."""
    named = dict(zip(op.canonical_parameters, canonical, strict=True))
    out = named.pop(OUT, None)
    return call_nodes(torch_ops(op, contract), [*named.values()], out, backend)


def call_nodes(
    nodes: tuple[Callable[..., Any], Callable[..., Any] | None],
    given: list[Any],
    out: torch.Tensor | None,
    backend: str,
) -> Any:
    """Call NAME; or NAME_out, if there is one, somewhere to write, and nobody to differentiate."""
    plain, into = nodes
    if out is None:
        return plain(*given, backend=backend)
    if into is None or (torch.is_grad_enabled() and any(one.requires_grad for one in tensors_in([*given, out]))):
        return written(plain(*given, backend=backend), out)
    into(*given, out, backend=backend)
    return out


def written(result: Any, out: torch.Tensor | None) -> Any:
    """What a functional op returned, with its first output put into `out`, if given."""
    if out is None:
        return result
    if isinstance(result, tuple):
        return out.copy_(result[0]), *result[1:]
    return out.copy_(result)


def differentiable_call(op: Op, contract: Contract, implementation: Implementation, canonical: tuple[Any, ...]) -> Any:
    """Call an op on plain tensors of which some require a gradient."""
    definition = _definition(op, contract)
    given = [value for name, value in zip(op.canonical_parameters, canonical, strict=True) if name != OUT]
    of = definition.differentiation
    result = of.apply(of, definition.run_forward, implementation, *given)  # type: ignore[union-attr]  # selection has seen to it
    return result if definition.out_at is None else written(result, canonical[definition.out_at])


def torch_ops(op: Op, contract: Contract) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    """`torch.ops.tilegym.NAME`, and NAME_out if the op can write into a tensor; defined on first use."""
    definition = _definition(op, contract)
    flops.register(definition.flops)
    return definition.overload, definition.into


def _definition(op: Op, contract: Contract) -> _Definition:
    definition = _defined.get(op.name)
    if definition is None or definition.contract is not contract:
        with _lock:
            definition = _defined.get(op.name)
            if definition is None:
                definition = _defined[op.name] = _Definition(op, contract)
                definition.define()
            elif definition.contract is not contract:
                definition.follow(op, contract)
    return definition


class _Definition:
    """The torch ops of one contract."""

    def __init__(self, op: Op, contract: Contract) -> None:
        self.op, self.contract = op, contract
        self.name = op.name.replace(".", "_")
        self.kinds = hints(contract.reference)
        """Canonical parameters, without `out` → their types."""
        self.result = self.kinds.pop("return", torch.Tensor)
        self.kinds.pop(OUT, None)
        self.out_at = op.canonical_parameters.index(OUT) if OUT in op.canonical_parameters else None
        results = typing.get_args(self.result) if len(contract.outputs) > 1 else (self.result,)
        self.results = dict(zip(contract.outputs, results, strict=True))
        """Outputs → their types."""
        lists = any(map(is_tensor_list, (*self.kinds.values(), *self.results.values())))
        differentiation = ListDifferentiation if lists else Differentiation
        self.differentiation = (
            None if contract.gradient is None else differentiation(op, contract, self.kinds, self.results)
        )
        self.overload: Callable[..., Any]
        self.into: Callable[..., Any] | None = None

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
        if self.differentiation is not None and contract.gradient is not None:
            self.differentiation.op, self.differentiation.gradient = op, contract.gradient

    @property
    def schemas(self) -> tuple[Any, ...]:
        """All that the schemas and formulas are made of."""
        one = self.contract.gradient
        gradient = None if one is None else (one.inputs, one.like, one.saved, one.residual_names, one.outputs)
        return tuple(self.kinds.items()), self.result, self.contract.outputs, gradient

    @property
    def flops(self) -> dict[str, Callable[..., int]]:
        """How many floating-point operations each torch op takes, from its arguments."""

        def forward(*given: Any, **_: Any) -> int:
            return self.contract.flops(*self._complete(given))

        found: dict[str, Callable[..., int]] = {self.name: forward}
        if self.into is not None:
            found[f"{self.name}_out"] = forward
        differentiation = self.differentiation
        if differentiation is not None:
            found[f"{self.name}_fwd"] = forward
            found[f"{self.name}_bwd"] = lambda *given, **_: flops.of_backward(differentiation, given)
        return found

    def define(self) -> None:
        """Define all; `overload` is NAME, `into` NAME_out."""
        self.overload = plain = self._register(
            self.name,
            schema(self.kinds, self.result),
            lambda *given, backend: self._run(backend, given),
            lambda *given, backend: self.contract.fake(*self._complete(given)),  # noqa: ARG005 - the same for all backends
        )
        if self.out_at is not None and len(self.contract.outputs) == 1:
            self.into = self._register(
                f"{self.name}_out",
                schema({**self.kinds, OUT: torch.Tensor}, None, written=(OUT,)),
                lambda *given, backend: self._run_into(backend, given),
                lambda *given, backend: None,  # noqa: ARG005 - nothing is returned
            )
        if self.differentiation is None:
            return
        forward, several = self._define_forward(), bool(self._residuals)
        outputs = len(self.contract.outputs)
        self.differentiation.define(self._register, _library)

        def differentiable(*given: Any, backend: str) -> Any:
            if torch.is_grad_enabled() and any(one.requires_grad for one in tensors_in(given)):
                result = forward(*given, backend=backend)
                return (result[0] if outputs == 1 else result[:outputs]) if several else result
            with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001 - how autograd kernels in Python go on
                return plain(*given, backend=backend)

        _library.impl(self.name, differentiable, "Autograd")

    @property
    def _residuals(self) -> tuple[str, ...]:
        return () if self.contract.gradient is None else self.contract.gradient.residual_names

    def _define_forward(self) -> Callable[..., Any]:
        results = (*self.results.values(), *[torch.Tensor] * len(self._residuals))
        return self._register(
            f"{self.name}_fwd",
            schema(self.kinds, results[0] if len(results) == 1 else tuple.__class_getitem__(results)),
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

    def _complete(self, given: tuple[Any, ...], out: torch.Tensor | None = None) -> tuple[Any, ...]:
        """All canonical arguments: `out` is put back in its place."""
        values = iter(given)
        return tuple(out if name == OUT else next(values) for name in self.op.canonical_parameters)

    def _run(self, backend: str, given: tuple[Any, ...], *, residuals: bool = False) -> Any:
        canonical = self._complete(given)
        chosen = self._implementation(backend, canonical)
        if residuals:
            return self.run_forward(chosen, given)
        positional, named = self.op.arguments(chosen, canonical)
        return chosen.function(*positional, **named)

    def _run_into(self, backend: str, given: tuple[Any, ...]) -> None:
        *values, out = given
        canonical = self._complete(tuple(values), out)
        positional, named = self.op.arguments(chosen := self._implementation(backend, canonical), canonical)
        chosen.function(*positional, **named)
        told(out)

    def _implementation(self, backend: str, canonical: tuple[Any, ...]) -> Implementation:
        chosen = registry.implementation(self.op.name, backend)
        reason = refusal(chosen, *canonical)  # of a node in a program, nobody has asked it yet
        if reason is not None:
            raise NoImplementationError(f"{self.op.name}: backend {backend!r} refuses this call: {reason}")
        return chosen

    def run_forward(self, chosen: Implementation, given: tuple[Any, ...]) -> Any:
        """The outputs, and the residuals if there are any, from an implementation."""
        positional, named = self.op.arguments(chosen, self._complete(given))
        return (chosen.function if chosen.forward is None else chosen.forward)(*positional, **named)

    def _fake_forward(self, given: tuple[Any, ...]) -> Any:
        canonical, gradient = self._complete(given), self.contract.gradient
        result = self.contract.fake(*canonical)
        if gradient is None or gradient.residuals is None:
            return result
        return (*(result if isinstance(result, tuple) else (result,)), *gradient.residuals(*canonical))


def register_torch_ops() -> None:
    """Define the torch ops of every op that has a contract; `torch.export.load` in a fresh process needs them."""
    for name in registry.op_names():
        op = registry.get_op(name)
        if op.contract is not None:
            torch_ops(op, op.contract)
