"""The traced path: what `torch.compile` and `torch.export` see of an op.

While code is being compiled the backend is chosen once, as a constant, by a function that is run and not traced. The
code is guarded on what the choice depends on: the scope, the default, the registry and the tensors' kinds. A backend
in plain PyTorch is inlined, so that the compiler fuses it; any other is one node, `torch.ops.tilegym.NAME`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import choice, registry
from tilegym.errors import ArgumentValueError, NoImplementationError
from tilegym.selection import Call, is_composite, select
from tilegym.sharding import is_distributed, on_parts
from tilegym.torch_ops import OUT, torch_op, written

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation


def traced_function(op: str, positional: tuple[str, ...]) -> Callable[..., Any]:
    """A function of (values of the declared parameters, further options, backend) that can be traced."""

    def traced(values: tuple[Any, ...], options: dict[str, Any], backend: str | None) -> Any:
        named = dict(zip(positional, values, strict=True)) | options
        kinds = tuple(
            (key, type(value), value.device, value.dtype, value.dim(), value.requires_grad and torch.is_grad_enabled())
            for key, value in named.items()
            if isinstance(value, torch.Tensor)
        )
        name = _choose(op, backend, tuple(options), kinds, choice.scope_text, choice.default, registry.epoch)
        run = getattr(_runs, name)
        return run(named)

    return traced


class _Runs:
    """What to trace, as attributes: a constant can hold a name, and a name is looked up anew where a dict is not."""


_runs: Final = _Runs()


def _choose(
    op_name: str,
    backend: str | None,
    options: tuple[str, ...],
    kinds: tuple[tuple[str, type, torch.device, torch.dtype, int, bool], ...],
    *_guards: str | None,
) -> str:
    """Choose a backend for tensors of these kinds; returns the name of what to trace."""
    op = registry.get_op(op_name)
    if is_distributed([kind for _, kind, *_ in kinds]):
        name = f"{op_name} on parts by {backend}"
        setattr(_runs, name, on_parts(op, backend))
        return name
    tensors = {
        name: torch.empty((0,) * rank, device=device, dtype=dtype, requires_grad=needs)
        for name, _, device, dtype, rank, needs in kinds
    }
    call = Call(
        canonical=tuple(tensors.get(name) for name in op.canonical_parameters),
        tensors=tuple(tensors.values()),
        options=dict.fromkeys(set(options) - set(op.meaningful)),
        needs_gradient=any(needs for *_, needs in kinds),
        special=True,
    )
    implementation = select(op, backend, call).implementation
    name = f"{op_name} on {implementation.backend}"
    setattr(_runs, name, (_inlined if is_composite(implementation) else _opaque)(op, implementation))
    return name


# What torch.compiler.assume_constant_result sets, without importing the compiler on the way.
_choose._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001 - as said above


def _inlined(op: Op, implementation: Implementation) -> Callable[[dict[str, Any]], Any]:
    """The implementation itself, in plain PyTorch."""
    contract, names, by_keyword = op.contract, op.canonical_parameters, op.by_keyword(implementation)
    function, supports, meaningful = implementation.function, implementation.supports, op.meaningful
    left_out = op.hints - {*implementation.parameters}
    op_name, backend, restricted = op.name, implementation.backend, _restricted(op)

    def inlined(arguments: dict[str, Any]) -> Any:
        _check_hints(op_name, restricted, arguments)
        given = {name: arguments[name] for name in meaningful if name in arguments}
        values = tuple(given.values()) if contract is None else contract.canonical(**given)
        reason = None if supports is None else supports(*values)
        if reason is not None:
            raise NoImplementationError(f"{op_name}: backend {backend!r} refuses this call: {reason}")
        positional = [value for value, named in zip(values, by_keyword, strict=True) if not named]
        rest = {name: value for name, value, named in zip(names, values, by_keyword, strict=True) if named}
        more = {name: value for name, value in arguments.items() if name not in meaningful and name not in left_out}
        return _completed(contract, values, lambda: function(*positional, **rest, **more))

    return inlined


def _completed(contract: Contract | None, canonical: tuple[Any, ...], call: Callable[[], Any]) -> Any:
    """The result of a call, with what the contract does around it in Python."""
    if contract is None:
        return call()
    same = None if contract.identity is None else contract.identity(*canonical)
    if same is not None:
        return same
    return call() if contract.dressed is None else contract.dressed(call(), *canonical)


def _restricted(op: Op) -> dict[str, tuple[Any, ...]]:
    """Hints → the values that they may have, where those are few."""
    hints = {} if op.contract is None else op.contract.hints
    return {hint: accepted for hint, accepted in hints.items() if accepted is not None}


def _check_hints(op: str, restricted: dict[str, tuple[Any, ...]], arguments: dict[str, Any]) -> None:
    for hint, accepted in restricted.items():
        if hint in arguments and arguments[hint] not in accepted:
            raise ArgumentValueError(f"{op}: {hint} must be one of {accepted}, got {arguments[hint]!r}")


def _opaque(op: Op, implementation: Implementation) -> Callable[[dict[str, Any]], Any]:
    """One node, which carries the backend as a constant."""
    contract = op.contract
    assert contract is not None  # noqa: S101 - selection refuses kernels without one; for the type checker
    names, meaningful, node = op.canonical_parameters, op.meaningful, torch_op(op, contract)
    op_name, backend, restricted = op.name, implementation.backend, _restricted(op)

    def opaque(arguments: dict[str, Any]) -> Any:
        _check_hints(op_name, restricted, arguments)
        values = contract.canonical(**{name: arguments[name] for name in meaningful if name in arguments})
        named = dict(zip(names, values, strict=True))
        out = named.pop(OUT, None)

        return _completed(contract, values, lambda: written(node(*named.values(), backend=backend), out))

    return opaque
