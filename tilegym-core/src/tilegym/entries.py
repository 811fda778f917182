"""What an entry of an op's table runs: a function generated for what was resolved, so that no call settles it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilegym.errors import GradientError
from tilegym.generated import generated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation
    from tilegym.selection import Selection


def make_run(
    op: Op, selection: Selection, backend: str | None, options: Sequence[str], *, needs_gradient: bool
) -> Callable[..., Any]:
    """A function of the declared parameters and then of these options, all by position.

    It does for calls of one kind what `slow_call` does: the contract's checks, what `supports` predicates say, and the
    implementation.
    """
    from tilegym.calls import check_hint, slow_call
    from tilegym.selection import refusal
    from tilegym.torch_ops import differentiable_call

    implementation, contract = selection.implementation, op.contract
    choosy = implementation.supports is not None or bool(selection.passed_over)
    plain = contract is None and not choosy and not needs_gradient
    if plain and not options and not any(op.by_keyword(implementation)):
        return implementation.function
    parameters = [*op.positional, *(f"_option_{index}" for index in range(len(options)))]
    given = dict(zip((*op.positional, *options), parameters, strict=True))
    names = op.canonical_parameters
    canonical = list(names) if contract is None else [f"_{i}" for i in range(len(names))]  # names no parameter has
    lines = [f"def run({', '.join(parameters)}):"]
    if contract is not None:
        lines += _checks(op, contract, given, canonical)
    if choosy:
        lines += _questions(op, selection, options, parameters, canonical)
    lines += _results(op, implementation, given, canonical, needs_gradient=needs_gradient)
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
    return generated("run", "\n".join(lines) + "\n", namespace)


def _checks(op: Op, contract: Contract, given: Mapping[str, str], canonical: Sequence[str]) -> Iterator[str]:
    """Lines that check hints and bring what was given, name → expression, in canonical form."""
    for hint, value in given.items():
        if accepted := contract.hints.get(hint):  # nearly always one of these objects; if not, it may still be equal
            other = " and ".join(f"{value} is not _accepted_{hint}[{index}]" for index in range(len(accepted)))
            yield f"    if {other}: _check_hint({op.name!r}, {hint!r}, {value}, _accepted_{hint})"
    meaningful = ", ".join(f"{name}={given[name]}" for name in op.meaningful if name in given)
    yield f"    {', '.join(canonical)}, = _canonical({meaningful})"


def _questions(
    op: Op, selection: Selection, options: Sequence[str], parameters: Sequence[str], canonical: Sequence[str]
) -> Iterator[str]:
    """Lines that choose anew if the implementation refuses the call, or a better one does not."""
    asked = [f"_refusal(_implementation, {', '.join(canonical)}) is not None"]
    asked += [f"_refusal(_better_{i}, {', '.join(canonical)}) is None" for i in range(len(selection.passed_over))]
    declared, rest = parameters[: len(op.positional)], parameters[len(op.positional) :]
    pairs = ", ".join(f"{name!r}: {value}" for name, value in zip(options, rest, strict=True))
    yield f"    if {' or '.join(asked)}:"
    yield f"        return _slow(_op, ({', '.join(declared)},), {{{pairs}}}, _backend)"


def _results(
    op: Op, implementation: Implementation, given: Mapping[str, str], canonical: Sequence[str], *, needs_gradient: bool
) -> Iterator[str]:
    """Lines that return the result."""
    from tilegym.selection import is_composite
    from tilegym.torch_ops import OUT

    contract, composite, names = op.contract, is_composite(implementation), op.canonical_parameters
    if contract is not None and contract.identity is not None:
        yield f"    _same = _contract.identity({', '.join(canonical)})"
        yield "    if _same is not None: return _same"
    call = f"_function({', '.join(_passed(op, implementation, given, canonical))})"
    if needs_gradient and contract is not None and not composite:
        call = f"_differentiable_call(_op, _contract, _implementation, ({', '.join(canonical)},))"
    elif needs_gradient:
        call = f"_attached({call}, _contract)"
    if contract is not None and contract.dressed is not None:
        call = f"_contract.dressed({call}, {', '.join(canonical)})"
    if contract is not None and OUT in names and not composite:
        out = canonical[names.index(OUT)]
        yield f"    if {out} is None: return {call}"
        yield f"    _result = {call}"
        yield f"    _told({out})"
        yield "    return _result"
    else:
        yield f"    return {call}"


def _passed(
    op: Op, implementation: Implementation, given: Mapping[str, str], canonical: Sequence[str]
) -> Iterator[str]:
    """What the implementation is passed, as source: the canonical arguments, and what it is told besides."""
    keyword = op.by_keyword(implementation)
    for name, value, by_keyword in zip(op.canonical_parameters, canonical, keyword, strict=True):
        yield f"{name}={value}" if by_keyword else value
    for name in op.passed_on(implementation, given):
        # What an implementation takes as **kwargs may have a name that is no identifier.
        yield f"{name}={given[name]}" if name in implementation.parameters else f"**{{{name!r}: {given[name]}}}"


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
