"""The slow path of a call: checks, choice, special tensors, tracing; it leaves a table entry for the next call."""

from __future__ import annotations

import inspect
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import events, registry
from tilegym.choice import scoped
from tilegym.entries import attached, make_run, told
from tilegym.errors import ArgumentTypeError, ArgumentValueError, RegistrationError
from tilegym.guards import has_tangent_level, in_transform, is_plain, make_guard, shown, tensors_in
from tilegym.log import logger
from tilegym.profiling import profiled, range_name
from tilegym.selection import Call, Selection, is_composite, select, warn_of_fallback
from tilegym.sharding import is_distributed, on_parts
from tilegym.text import listed
from tilegym.torch_ops import OUT

if TYPE_CHECKING:
    from collections.abc import Collection

    from tilegym.op import Key, Op

_running: ContextVar[frozenset[tuple[str, str]]] = ContextVar("tilegym_running", default=frozenset())
_MOST_KINDS: Final = 64  # kinds kept per op and choice: dtypes x ranks x grad states of a large model are fewer
_MOST_KEYS: Final = 256  # choices kept per op, each for every set of options that is named with it


def check_hint(op: str, hint: str, value: object, accepted: tuple[Any, ...] | None) -> None:
    """Raise ArgumentValueError unless the value of a hint is one of those accepted; None: any is."""
    if accepted is not None and (isinstance(value, torch.Tensor) or value not in accepted):
        got = "a tensor" if isinstance(value, torch.Tensor) else repr(value)
        raise ArgumentValueError(f"{op}: {hint} must be one of {', '.join(map(repr, accepted))}, got {got}")


def describe_call(op: Op, args: tuple[Any, ...], options: dict[str, Any]) -> Call:
    """Check the arguments, put them in canonical form, and say what matters to the choice of a backend.

    Raises:
        ContractError: an argument breaks the op's contract.
    """
    given = dict(zip(op.positional, args, strict=False))
    if twice := given.keys() & options.keys():  # of a parameter that is declared as positional-only
        raise ArgumentTypeError(f"{op.name}: {listed(twice)} given twice, by position and as an option")
    contract = op.contract
    tensors = tuple(tensors_in((*args, *options.values())))
    if contract is None:
        canonical = args
    else:
        for hint in {*op.hints, *contract.hints} & (given.keys() | options.keys()):
            check_hint(op.name, hint, options.get(hint, given.get(hint)), contract.hints.get(hint))
        _refuse_nested(op, given | options)
        wanted = op.meaningful
        semantic = {name: value for name, value in (given | options).items() if name in wanted}
        canonical = contract.canonical(**semantic)
        options = {name: value for name, value in options.items() if name not in wanted}
    return Call(
        canonical=canonical,
        complete=True,
        tensors=tensors,
        options=options,
        needs_gradient=torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors),
        special=not is_plain(tensors),
        transformed=in_transform() or (has_tangent_level() and _has_tangent(tensors)),
    )


def _refuse_nested(op: Op, given: dict[str, Any]) -> None:
    """Nested tensors pass for strided ones, and PyTorch aborts the process when it is asked for their strides."""
    for name, value in given.items():
        if any(tensor.is_nested for tensor in tensors_in([value])):
            raise ArgumentTypeError(f"{op.name}: {name} must be dense, got a nested tensor; call on each of its parts")


def _has_tangent(tensors: tuple[torch.Tensor, ...]) -> bool:
    unpack: Any = torch.autograd.forward_ad.unpack_dual  # which torch leaves unannotated
    return any(unpack(tensor).tangent is not None for tensor in tensors)


def call_with_options(op: Op, args: tuple[Any, ...], options: dict[str, Any], backend: str | None) -> Any:
    """Call an op with keyword options: as its generated function does without, with a guard that sees them too."""
    if not has_tangent_level() and (backend is None or isinstance(backend, str)):
        entries = op.table.get(_key(backend, options), ())
        seen = shown(op, args, options) if entries else ()
        for check, run, label in entries:
            if check(*seen):
                return profiled(label, run, *args, *options.values())
    return slow_call(op, args, options, backend)


def _key(backend: str | None, options: Collection[str]) -> Key:
    """Under what an op's table has the calls of a choice that name these options, in this order."""
    choice = scoped() if backend is None else backend
    return (choice, *options) if options else choice


def slow_call(op: Op, args: tuple[Any, ...], options: dict[str, Any], backend: str | None) -> Any:
    """Resolve and call an op; the first call of every kind comes this way."""
    started = time.perf_counter()
    if backend is not None and not isinstance(backend, str):
        raise ArgumentTypeError(f"{op.name}: backend must be a string, got {type(backend).__name__}")
    generation = registry.generation
    if is_distributed(map(type, tensors_in((*args, *options.values())))):
        return on_parts(op, backend)(dict(zip(op.positional, args, strict=False)) | options)
    call = describe_call(op, args, options)
    selection = select(op, backend, call)
    warn_of_fallback(op, selection)
    logger.debug("%s: backend %s, %s", op.name, selection.implementation.backend, selection.reason)
    label = range_name(op.name, selection.implementation.backend)
    result = profiled(label, _run, op, selection, call, dict(zip(op.positional, args, strict=False)))
    if events.listening():
        events.tell(op, selection, call, time.perf_counter() - started)
    else:
        _remember(op, args, options, call, selection, backend, generation)
    return result


def _run(op: Op, selection: Selection, call: Call, given: dict[str, Any]) -> Any:
    """Run what was chosen; the contract's `identity` and `dressed` around it."""
    contract, canonical = op.contract, call.canonical
    same = contract.identity(*canonical) if contract is not None and contract.identity is not None else None
    if same is not None:
        return same
    result = _run_chosen(op, selection, call, given)
    return result if contract is None or contract.dressed is None else contract.dressed(result, *canonical)


def _run_chosen(op: Op, selection: Selection, call: Call, given: dict[str, Any]) -> Any:
    implementation, canonical = selection.implementation, call.canonical
    if (call.special or call.needs_gradient) and op.contract is not None and not is_composite(implementation):
        from tilegym.torch_ops import call_op, differentiable_call

        if call.special:
            return call_op(op, op.contract, implementation.backend, canonical)
        return differentiable_call(op, op.contract, implementation, canonical)
    key = (op.name, implementation.backend)
    if key in _running.get():
        raise RegistrationError(
            f"the implementation of {op.name} by backend {implementation.backend!r} calls {op.name} again, "
            "and that call chose the same implementation; name another backend there"
        )
    given = {**given, **call.options}
    besides = {name: given[name] for name in op.passed_on(implementation, given)}
    token = _running.set(_running.get() | {key})
    try:
        positional, named = op.arguments(implementation, canonical)
        result = implementation.function(*positional, **named, **besides)
    finally:
        _running.reset(token)
    if op.contract is not None and not is_composite(implementation):
        told(dict(zip(op.canonical_parameters, canonical, strict=True)).get(OUT))
    # Of a wrapper that a transform made, PyTorch does not tell whether what it wraps is part of a graph.
    return attached(result, op.contract) if call.needs_gradient and not call.transformed else result


def _remember(
    op: Op,
    args: tuple[Any, ...],
    options: dict[str, Any],
    call: Call,
    selection: Selection,
    backend: str | None,
    generation: int,
) -> None:
    """Keep what was resolved for calls of this kind, unless anything has changed since."""
    if not op.guarded or len(args) != len(op.positional) or call.special:
        return
    seen = shown(op, args, options)
    kinds = [kind for kind in seen if kind is not None]
    check = make_guard(kinds) if len(kinds) == len(seen) else None
    if check is None:
        return
    run = make_run(op, selection, backend, [*options], needs_gradient=call.needs_gradient)
    label = range_name(op.name, selection.implementation.backend)
    with registry.lock:
        if registry.generation == generation:
            key = _key(backend, options)
            op.table[key] = ((check, run, label), *op.table.get(key, ())[: _MOST_KINDS - 1])
            if len(op.table) > _MOST_KEYS:
                del op.table[next(iter(op.table))]


def bound(op: Op, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A user's arguments as `describe_call` takes them: a value for every declared parameter, and further options."""
    signature = inspect.signature(op.function)
    try:
        arguments = signature.bind(*args, **options)
    except TypeError as error:
        raise ArgumentTypeError(f"{op.name}: {error}; its signature is {signature}") from None
    arguments.apply_defaults()
    values = arguments.arguments
    more = next((p.name for p in op.parameters if p.kind is inspect.Parameter.VAR_KEYWORD), "")
    return tuple(values[name] for name in op.positional), dict(values.get(more, {}))
