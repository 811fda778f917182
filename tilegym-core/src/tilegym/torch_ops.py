"""Ops as PyTorch sees them, `torch.ops.tilegym.NAME`, for calls that somebody else wants to see or change.

A subclass, a dispatch mode, a fake or meta tensor, a negative view: PyTorch's own dispatcher knows what to do with
each, given an op with a schema and a fake. One is defined per contract, on first need, from its canonical signature.
"""

from __future__ import annotations

import inspect
import threading
import typing
from typing import TYPE_CHECKING, Any

import torch

from tilegym import registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation
    from tilegym.selection import Call

_OUT = "out"
_lock = threading.RLock()
_library: Any = None  # a torch.library.Library, once needed; its methods are untyped
_defined: dict[str, Callable[..., Any]] = {}


def call_op(op: Op, contract: Contract, implementation: Implementation, call: Call) -> Any:
    """Call an op through PyTorch's dispatcher, on the implementation chosen."""
    named = dict(zip(op.canonical_parameters, call.canonical, strict=True))
    out = named.pop(_OUT, None)
    result = torch_op(op, contract)(*named.values(), backend=implementation.backend)
    return result if out is None else out.copy_(result)


def torch_op(op: Op, contract: Contract) -> Callable[..., Any]:
    """`torch.ops.tilegym.NAME`, defined on first use."""
    with _lock:
        if op.name not in _defined:
            _defined[op.name] = _define(op, contract)
        return _defined[op.name]


def _define(op: Op, contract: Contract) -> Callable[..., Any]:
    global _library  # noqa: PLW0603 - one library per process, as torch wants it
    if _library is None:
        _library = torch.library.Library("tilegym", "FRAGMENT")  # type: ignore[no-untyped-call]  # untyped in torch
    name = op.name.replace(".", "_")

    def run(*canonical: Any, backend: str) -> Any:
        chosen = registry.implementation(op.name, backend)
        positional, named = op.arguments(chosen, _complete(op, canonical))
        return chosen.function(*positional, **named)

    def fake(*canonical: Any, backend: str) -> Any:  # noqa: ARG001 - a fake is the same for all backends
        return contract.fake(*_complete(op, canonical))

    _library.define(name + schema(contract))
    _library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tilegym::{name}", fake, lib=_library)
    overload: Callable[..., Any] = getattr(torch.ops.tilegym, name).default
    return overload


def _complete(op: Op, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """All canonical arguments: with `out=None` in its place, and the defaults that PyTorch leaves out at the end."""
    values = iter(given)
    return tuple(None if name == _OUT else next(values, default) for name, default in op.canonical_parameters.items())


def schema(contract: Contract) -> str:
    """The schema of the functional op: `(Tensor x, *, str backend) -> Tensor`."""
    hints = typing.get_type_hints(contract.canonical)
    parameters = [
        p.replace(annotation=_schema_type(hints[p.name]))
        for p in inspect.signature(contract.canonical).parameters.values()
        if p.name != _OUT
    ]
    parameters.append(inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, annotation=str))
    result = typing.get_type_hints(contract.reference).get("return", torch.Tensor)

    def prototype() -> None:
        """Only its signature counts."""

    prototype.__signature__ = inspect.Signature(parameters, return_annotation=result)  # type: ignore[attr-defined]  # read by infer_schema
    return torch.library.infer_schema(prototype, mutates_args=())


def _schema_type(kind: Any) -> Any:
    """The annotation as `infer_schema` wants it: ints in lists, and nothing optional about lists."""
    parts = set(typing.get_args(kind))
    if any(typing.get_origin(part) is not None for part in parts | {kind}) and torch.Tensor not in parts:
        return typing.Sequence[int]
    return typing.Optional[torch.Tensor] if parts == {torch.Tensor, type(None)} else kind  # noqa: UP045 - what torch reads
