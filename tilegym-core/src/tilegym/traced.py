"""The traced path: what `torch.compile` and `torch.export` see of an op.

While code is being compiled the backend is chosen once, as a constant, by a function that is run and not traced. The
code is guarded on what the choice depends on: the scope, the default, the registry and the tensors' kinds. A backend
in plain PyTorch is inlined, so that the compiler fuses it; any other is one node, `torch.ops.tilegym.NAME`. What a
backend's `supports` says of a call depends on its sizes and numbers, and so is traced: the next backend takes what the
first refuses, as eagerly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import choice, registry
from tilegym.calls import call_with_options, check_hint, slow_call
from tilegym.errors import NoImplementationError
from tilegym.guards import tensors_in
from tilegym.selection import Call, is_composite, takers
from tilegym.sharding import is_distributed, on_parts
from tilegym.torch_ops import OUT, call_nodes, torch_ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.op import Op
    from tilegym.registry import Implementation


def traced_function(op: str, positional: tuple[str, ...]) -> Callable[..., Any]:
    """A function of (values of the declared parameters, further options, backend) that can be traced."""

    def traced(values: tuple[Any, ...], options: dict[str, Any], backend: str | None) -> Any:
        named = dict(zip(positional, values, strict=True)) | options
        kinds = tuple(
            (key, type(one), one.device, one.dtype, one.dim(), one.requires_grad and torch.is_grad_enabled())
            for key, value in named.items()
            for one in tensors_in([value])
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
    """Choose the backends for tensors of these kinds; returns the name of what to trace."""
    op = registry.get_op(op_name)
    _keep_out_of_slow_calls(op)
    if is_distributed([kind for _, kind, *_ in kinds]):
        name = f"{op_name} on parts by {backend}"
        setattr(_runs, name, on_parts(op, backend))
        return name
    tensors: dict[str, list[torch.Tensor]] = {}
    for name, _, device, dtype, rank, needs in kinds:
        stand_in = torch.empty((0,) * rank, device=device, dtype=dtype, requires_grad=needs)
        tensors.setdefault(name, []).append(stand_in)
    call = Call(
        canonical=tuple(tensors.get(name) for name in op.canonical_parameters),
        tensors=tuple(tensors_in(tensors.values())),
        options=dict.fromkeys(set(options) - set(op.meaningful)),
        needs_gradient=any(needs for *_, needs in kinds),
        special=True,
    )
    chosen = takers(op, backend, call)
    name = f"{op_name} on {', else '.join(one.backend for one in chosen)}"
    setattr(_runs, name, _run_of(op, chosen))
    return name


# What torch.compiler.assume_constant_result sets, without importing the compiler on the way.
_choose._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001 - as said above


def _keep_out_of_slow_calls(op: Op) -> None:
    """A call that raises while it is traced is made again, eagerly: the compiler must not then compile that path."""
    namespace = op.function.__globals__
    for name, function in (("_slow", slow_call), ("_with_options", call_with_options)):
        if namespace[name] is function:
            namespace[name] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]  # untyped in torch


def _run_of(op: Op, chosen: list[Implementation]) -> Callable[[dict[str, Any]], Any]:
    """What to trace: the contract's checks, and the first of the implementations that takes the call."""
    contract, op_name, meaningful, restricted = op.contract, op.name, op.meaningful, _restricted(op)
    bodies = [(one.backend, one.supports, (_inlined if is_composite(one) else _opaque)(op, one)) for one in chosen]

    def run(arguments: dict[str, Any]) -> Any:
        for hint, accepted in restricted.items():
            if hint in arguments:
                check_hint(op_name, hint, arguments[hint], accepted)
        given = {name: arguments[name] for name in meaningful if name in arguments}
        values = tuple(given.values()) if contract is None else contract.canonical(**given)
        same = None if contract is None or contract.identity is None else contract.identity(*values)
        if same is not None:
            return same
        refused = ""
        for backend, supports, body in bodies:
            reason = None if supports is None else supports(*values)
            if reason is None:
                result = body(values, arguments)
                return result if contract is None or contract.dressed is None else contract.dressed(result, *values)
            refused += f"\n  {backend}: {reason}"
        raise NoImplementationError(f"{op_name}: no backend that was chosen takes this call:{refused}")

    return run


def _restricted(op: Op) -> dict[str, tuple[Any, ...]]:
    """Hints → the values that they may have, where those are few."""
    hints = {} if op.contract is None else op.contract.hints
    return {hint: accepted for hint, accepted in hints.items() if accepted is not None}


def _inlined(op: Op, implementation: Implementation) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """The implementation itself, in plain PyTorch."""
    names, meaningful, function = op.canonical_parameters, op.meaningful, implementation.function
    by_keyword, left_out = op.by_keyword(implementation), op.hints - {*implementation.parameters}

    def inlined(values: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
        positional = [value for value, named in zip(values, by_keyword, strict=True) if not named]
        rest = {name: value for name, value, named in zip(names, values, by_keyword, strict=True) if named}
        more = {name: value for name, value in arguments.items() if name not in meaningful and name not in left_out}
        return function(*positional, **rest, **more)

    return inlined


def _opaque(op: Op, implementation: Implementation) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """One node, which carries the backend as a constant."""
    contract = op.contract
    assert contract is not None  # noqa: S101 - selection refuses kernels without one; for the type checker
    names, nodes, backend = op.canonical_parameters, torch_ops(op, contract), implementation.backend

    def opaque(values: tuple[Any, ...], _: dict[str, Any]) -> Any:
        named = dict(zip(names, values, strict=True))
        out = named.pop(OUT, None)
        return call_nodes(nodes, [*named.values()], out, backend)

    return opaque
