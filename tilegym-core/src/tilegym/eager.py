"""The eager path: one generated function per op, which guards its tensors and runs what was resolved for their kind."""

from __future__ import annotations

import functools
import inspect
import linecache
import typing
import zlib
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.errors import GradientError
from tilegym.guards import absent
from tilegym.profiling import profiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.selection import Selection

_SCALARS: Final = (int, float, str, torch.dtype, torch.device, type(None))
_SHOWN: Final = {
    "tensor": "{0}",
    "optional": "(_absent_{0} if {0} is None else {0})",
    "any": "_stand_in({0}, _absent_{0})",
}
_NESTED: Final = {"tensor": "{0}.is_nested", "optional": "{0} is not None and {0}.is_nested", "any": "False"}
"""What no guard may be shown: PyTorch aborts the process when one asks a nested tensor for its strides."""


def shown(form: str, value: object, absent: torch.Tensor) -> torch.Tensor | None:
    """What the generated function shows a guard of a value; None: nothing that a guard accepts."""
    if form == "any":
        return stand_in(value, absent)
    if form == "optional" and value is None:
        return absent
    return value if isinstance(value, torch.Tensor) else None


def stand_in(value: object, absent: torch.Tensor) -> torch.Tensor | None:
    """What a guard sees of a value that may be anything: itself, "no tensor", or None, which no guard accepts."""
    if isinstance(value, torch.Tensor):
        return None if value.is_nested else value
    return absent if isinstance(value, _SCALARS) else None


def _compile(name: str, source: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Run generated source, kept in linecache so that tracebacks and debuggers show it."""
    filename = f"<tilegym {name} {zlib.crc32(source.encode()):08x}>"  # the same for the same source: nothing piles up
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - our own source, made of a signature
    function: Callable[..., Any] = namespace[name]
    return function


def guarded(op: Op) -> dict[str, str]:
    """Parameters that may hold tensors → how: "tensor", "optional" or "any"; what a guard sees is in `_SHOWN`."""
    try:
        hints = typing.get_type_hints(op.declared)
    except Exception:  # noqa: BLE001 - annotations that cannot be evaluated say nothing
        hints = {}
    found = {}
    for name in op.positional:
        kind = hints.get(name, Any)
        leaves = set(typing.get_args(kind)) or {kind}
        if leaves == {torch.Tensor}:
            found[name] = "tensor"
        elif leaves == {torch.Tensor, type(None)}:
            found[name] = "optional"
        elif not leaves <= {int, float, bool, str, type(None), torch.dtype, Ellipsis} and not _is_int_list(kind):
            found[name] = "any"
    return found


def _is_int_list(kind: Any) -> bool:
    parts = [part for part in (typing.get_args(kind) or (kind,)) if part not in (int, type(None))]
    return bool(parts) and all(
        set(typing.get_args(part)) <= {int, Ellipsis} and typing.get_args(part) for part in parts
    )


def public_function(op: Op) -> Callable[..., Any]:
    """The function that users call: the declared signature with `backend=` added."""
    from tilegym.calls import slow_call
    from tilegym.choice import scoped
    from tilegym.traced import traced_function

    name, signature = op.name.rpartition(".")[2], _with_backend(op)
    namespace: dict[str, Any] = {
        "_op": op,
        "_scoped": scoped,
        "_slow": slow_call,
        "_stand_in": stand_in,
        "_forward_ad": torch.autograd.forward_ad,
        "_profiled": profiled,
        "_profiler": torch.autograd.profiler,
        "_is_compiling": torch.compiler.is_dynamo_compiling,
        "_traced": traced_function(op.name, op.positional),
    }
    catch_all = next((p.name for p in op.parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    values = "".join(f"{p}, " for p in op.positional)
    lines = [
        f"def {name}{_written(signature, namespace)}:",
        "    if _is_compiling():",
        f"        return _traced(({values}), {catch_all or '{}'}, backend)",
    ]
    guards = guarded(op)
    namespace |= {f"_absent_{name}": absent(name) for name in guards}
    if guards:
        unless = f"not {catch_all} and " if catch_all else ""
        nested = " or ".join(_NESTED[form].format(name) for name, form in guards.items())
        lines += [
            f"    if {unless}_forward_ad._current_level < 0:",
            "        try:",
            f"            _entries = () if {nested} else _op.table[_scoped() if backend is None else backend]",
            "        except (KeyError, TypeError, AttributeError):",
            "            _entries = ()",
            "        for _check, _run, _label in _entries:",
            f"            if _check({', '.join(_SHOWN[form].format(name) for name, form in guards.items())}):",
            "                if _profiler._is_profiler_enabled:",
            f"                    return _profiled(_label, _run, {', '.join(op.positional)})",
            f"                return _run({', '.join(op.positional)})",
        ]
    lines.append(f"    return _slow(_op, ({values}), {catch_all or '{}'}, backend)")
    function = _compile(name, "\n".join(lines) + "\n", namespace)
    functools.update_wrapper(function, op.declared)  # __wrapped__ is where tools evaluate the annotations
    function.__annotations__ = {"backend": "str | None", **op.declared.__annotations__}
    function.__signature__ = signature  # type: ignore[attr-defined]  # with annotations, which the source leaves out
    function.__tilegym_op__ = op  # type: ignore[attr-defined]  # how tools find the op
    function.contract = None  # type: ignore[attr-defined]  # spec files attach it
    return function


def _with_backend(op: Op) -> inspect.Signature:
    """The declared signature with a keyword `backend`, unless it has one."""
    signature = inspect.signature(op.declared)
    if "backend" in signature.parameters:
        return signature
    backend = inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    catch_all = [p for p in op.parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    named = [p for p in op.parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=[*named, backend, *catch_all])


class _Name:
    """A default in generated source: the name of an object in its namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _written(signature: inspect.Signature, namespace: dict[str, Any]) -> str:
    """The parameters as source, without annotations; defaults go into the namespace."""
    empty = inspect.Parameter.empty
    namespace |= {f"_default_{p.name}": p.default for p in signature.parameters.values() if p.default is not empty}
    plain = [
        p.replace(annotation=empty, default=empty if p.default is empty else _Name(f"_default_{p.name}"))
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))


def attached(result: Any, contract: Contract | None) -> Any:
    """The result, if those of its tensors that have a gradient are part of the autograd graph.

    Raises:
        GradientError: an input requires a gradient, and the implementation cut the graph.
    """
    values = result if isinstance(result, (tuple, list)) else (result,)
    if contract is not None and contract.gradient is not None and contract.gradient.outputs is not None:
        named = dict(zip(contract.outputs, values, strict=True))
        values = [named[name] for name in contract.gradient.outputs]
    floats = [value for value in values if isinstance(value, torch.Tensor) and value.dtype.is_floating_point]
    if floats and not any(value.requires_grad for value in floats):  # one of several may be of other inputs alone
        raise GradientError(
            "an input requires a gradient, and the implementation returned a tensor that is cut from the graph; "
            "call it under torch.no_grad() if no gradient is meant"
        )
    return result


def told(out: torch.Tensor | None) -> None:
    """Tell autograd that a kernel has written a tensor: a backward that has kept its old values must raise."""
    if out is not None and not out.is_inference():
        torch.autograd.graph.increment_version(out)


def make_run(op: Op, selection: Selection, backend: str | None, *, needs_gradient: bool) -> Callable[..., Any]:
    """What a table entry runs: the contract's checks, what `supports` predicates say, and the implementation."""
    from tilegym.calls import check_hint, slow_call
    from tilegym.selection import is_composite, refusal
    from tilegym.torch_ops import OUT, differentiable_call

    implementation, contract = selection.implementation, op.contract
    declared = ", ".join(op.positional)
    names = op.canonical_parameters
    canonical = names if contract is None else [f"_{index}" for index in range(len(names))]  # names no parameter has
    hints = op.hints_taken(implementation)
    keyword = op.by_keyword(implementation)
    parts = [f"{name}={value}" if by else value for name, value, by in zip(names, canonical, keyword, strict=True)]
    passed = ", ".join([*parts, *(f"{hint}={hint}" for hint in hints if hint in op.positional)])
    choosy = implementation.supports is not None or selection.passed_over
    if contract is None and not choosy and not needs_gradient and not any(keyword):
        return implementation.function
    lines = [f"def run({declared}):"]
    if contract is not None:
        lines += [
            f"    if {hint} not in _accepted_{hint}: _check_hint(_op, {hint!r}, {hint})"
            for hint in op.positional
            if contract.hints.get(hint) is not None
        ]
        given = ", ".join(name for name in op.meaningful if name in op.positional)
        lines.append(f"    {', '.join(canonical)}, = _canonical({given})")
    if choosy:
        asked = ", ".join(["_refusal(_implementation", *canonical]) + ") is not None"
        better = (f"_refusal(_better_{i}, {', '.join(canonical)}) is None" for i in range(len(selection.passed_over)))
        lines.append(f"    if {' or '.join([asked, *better])}:")
        lines.append(f"        return _slow(_op, ({declared},), {{}}, _backend)")
    if contract is not None and contract.identity is not None:
        lines.append(f"    _same = _contract.identity({', '.join(canonical)})")
        lines.append("    if _same is not None: return _same")
    call = f"_function({passed})"
    if needs_gradient and contract is not None and not is_composite(implementation):
        call = f"_differentiable_call(_op, _contract, _implementation, ({', '.join(canonical)},))"
    elif needs_gradient:
        call = f"_attached({call}, _contract)"
    if contract is not None and contract.dressed is not None:
        call = f"_contract.dressed({call}, {', '.join(canonical)})"
    if contract is not None and OUT in names and not is_composite(implementation):
        out = canonical[names.index(OUT)]
        lines += [
            f"    if {out} is None: return {call}",
            f"    _result = {call}",
            f"    _told({out})",
            "    return _result",
        ]
    else:
        lines.append(f"    return {call}")
    namespace: dict[str, Any] = {
        "_attached": attached,
        "_backend": backend,
        "_differentiable_call": differentiable_call,
        "_contract": contract,
        "_canonical": contract.canonical if contract is not None else None,
        "_check_hint": check_hint,
        "_function": implementation.function,
        "_op": op,
        "_slow": slow_call,
        "_told": told,
        "_implementation": implementation,
        "_refusal": refusal,
    }
    namespace |= {f"_better_{i}": better for i, better in enumerate(selection.passed_over)}
    if contract is not None:
        namespace |= {f"_accepted_{hint}": accepted for hint, accepted in contract.hints.items()}
    return _compile("run", "\n".join(lines) + "\n", namespace)
