"""Chooses the backend of a call: every candidate is taken or refused for a reason that a person can read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from tilegym import availability, registry
from tilegym.choice import AUTO, preference
from tilegym.config import canonical_name, settings
from tilegym.errors import ArgumentTypeError, BackendUnavailableError, FallbackWarning, NoImplementationError
from tilegym.guards import tensors_in
from tilegym.notices import once
from tilegym.text import describe, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilegym.op import Op
    from tilegym.registry import Implementation


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """What of a call matters to the choice of its backend."""

    canonical: tuple[Any, ...] = ()
    """The arguments, checked and in canonical form; those of a traced call are stand-ins, None where no tensor is."""
    complete: bool = False
    """Whether they are the arguments themselves: no `supports` is asked of others."""
    tensors: tuple[torch.Tensor, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword options that the contract does not know."""
    needs_gradient: bool = False
    transformed: bool = False
    """vmap, grad, forward-mode or another transform wants to see through the op."""
    special: bool = False
    """A tensor is meta, fake, a subclass or a lazy view, or a dispatch mode is active: PyTorch must see the op."""

    @property
    def device(self) -> torch.device | None:
        """The first tensor's."""
        return self.tensors[0].device if self.tensors else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One backend's state for an op and a call."""

    backend: str
    discovered: bool = True
    """It says that it implements the op."""
    usable: bool = False
    """It can run here, on the call's device."""
    importable: bool = False
    """Its implementation loads, with a signature that fits the contract."""
    supports: bool = False
    """It takes this call."""
    reason: str | None = None
    """Why it got no further; None if it takes the call."""
    by_supports: bool = False
    """It was its own `supports` that refused."""
    error: BaseException | None = None
    """What loading its implementation raised."""
    implementation: Implementation | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The choice made, and why."""

    implementation: Implementation
    reason: str
    passed_over: tuple[Implementation, ...] = ()
    """Better ones whose `supports` refused this call; it may accept the next one of the same kind."""
    fallen_from: str | None = None
    """The backend that was preferred, if another one serves."""


def is_composite(implementation: Implementation) -> bool:
    """Whether autograd, vmap and the compiler can see through an implementation."""
    backend = registry.backends().get(implementation.backend)
    return implementation.composite or (backend is not None and backend.composite)


def candidates_of(op: Op) -> list[str]:
    """The backends that say they implement an op, in the order in which `auto` takes them."""
    known = registry.backends()
    names = [name for name in known if registry.has_implementation(op.name, name)]
    return sorted(names, key=lambda name: (-known[name].priority, name))


def examine(op: Op, name: str, call: Call) -> Candidate:
    """How far a backend gets with an op and a call."""
    if not registry.has_implementation(op.name, name):
        broken = registry.why_no_pack(op.name, name)
        why = f"it has no implementation of {op.name}" if broken is None else f"its files: {describe(broken)}"
        return Candidate(backend=name, discovered=False, reason=why, error=broken)
    reason = availability.why_unusable(registry.backends()[name], call.device)
    if reason is not None:
        return Candidate(backend=name, reason=reason)
    try:
        implementation = registry.implementation(op.name, name)
        op.check_signature(implementation)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken file is a reason; asked for by name, it raises
        reason = f"its implementation failed to load: {describe(error)}"
        return Candidate(backend=name, usable=True, reason=reason, error=error)
    reason, by_supports = _why_refused(op, implementation, call), False
    if reason is None and call.complete:  # else there is no call yet that it could refuse
        reason = refusal(implementation, *call.canonical)
        by_supports = reason is not None
    return Candidate(
        backend=name,
        usable=True,
        importable=True,
        supports=reason is None,
        reason=reason,
        by_supports=by_supports,
        implementation=implementation,
    )


def _why_refused(op: Op, implementation: Implementation, call: Call) -> str | None:
    """For reasons that hold for every call of this kind."""
    unknown = op.unknown_options(implementation, call.options)
    if unknown:
        return f"it does not know the option(s) {listed(unknown)}"
    if implementation.dtypes is not None and call.tensors:
        dtype = str(call.tensors[0].dtype).removeprefix("torch.")
        if dtype not in implementation.dtypes:
            return f"it takes {listed(implementation.dtypes)}, got {dtype}"
    if implementation.min_capability is not None and call.device is not None and call.device.type == "cuda":
        capability = torch.cuda.get_device_capability(call.device)
        if capability < implementation.min_capability:
            return f"it needs compute capability {implementation.min_capability}, {call.device} has {capability}"
    return None if is_composite(implementation) else _why_kernels_refuse(op, implementation, call)


def _why_kernels_refuse(op: Op, implementation: Implementation, call: Call) -> str | None:
    """For what PyTorch cannot do through code that it does not see."""
    if call.transformed:
        return "vmap, grad and forward-mode transforms cannot see through its kernels"
    if call.needs_gradient:
        reason = _why_no_gradient(op, implementation, call)
        if reason is not None:
            return reason
    if call.special and op.contract is None:
        return "its kernels take plain tensors only, and without a contract PyTorch cannot be shown the op"
    if (call.special or call.needs_gradient) and set(call.options) - op.hints:
        return f"its option(s) {listed(set(call.options) - op.hints)} are for plain tensors that need no gradient"
    return None


def _why_no_gradient(op: Op, implementation: Implementation, call: Call) -> str | None:
    gradient = op.contract.gradient if op.contract is not None else None
    if gradient is None or implementation.backward is None:
        return "it has no backward, and an input requires a gradient"
    named = dict(zip(op.canonical_parameters, call.canonical, strict=False))
    out = named.pop("out", None)
    in_place = any(out is value for value in named.values())
    if out is not None and not in_place:
        return "out= was given, and an input requires a gradient"
    for name, value in named.items():
        if name not in gradient.inputs and any(one.requires_grad for one in tensors_in([value])):
            return f"{name} requires a gradient, and the op has none for it"
    return None


def refusal(implementation: Implementation, *canonical: Any) -> str | None:
    """What an implementation's own `supports` says of canonical arguments; one that fails is a reason too."""
    if implementation.supports is None:
        return None
    try:
        reason = implementation.supports(*canonical)
    except Exception as error:  # noqa: BLE001 - the other backends still serve; asked for by name, it is told
        return f"its supports failed: {describe(error)}"
    if reason is None or isinstance(reason, str):
        return reason
    return f"its supports must return None or a reason, got {reason!r}"


def select(op: Op, backend: str | None, call: Call) -> Selection:
    """The implementation that takes a call.

    Raises:
        ValueError: the backend asked for is unknown, or cannot run here.
        NoImplementationError: the one asked for, or every candidate, refuses; with each one's reason.
        ArgumentTypeError: nobody knows an option.
    """
    name, origin = preference(op.name, backend)
    if canonical_name(name) == AUTO:
        return _first(op, call, [])
    wanted = examine(op, availability.find_backend(name).name, call)
    if wanted.implementation is not None and wanted.supports:
        return Selection(implementation=wanted.implementation, reason=f"asked for by {origin}")
    if origin == "call":
        raise _refusal(op, wanted, call)
    message = f"backend {wanted.backend!r}, preferred by {origin}, does not serve this call: {wanted.reason}"
    if settings().fallback == "error":
        raise NoImplementationError(f"{op.name}: {message}.{_reasons(op, call, skip=wanted.backend)}")
    return replace(_first(op, call, [wanted]), reason=message, fallen_from=wanted.backend)


def takers(op: Op, backend: str | None, call: Call) -> list[Implementation]:
    """For a call that is not complete: who takes it, and after each whose `supports` may refuse it, the next."""
    found = [select(op, backend, call).implementation]
    name, origin = preference(op.name, backend)
    obeyed = canonical_name(name) != AUTO and (origin == "call" or settings().fallback == "error")
    while found[-1].supports is not None and not obeyed:
        refused = [Candidate(backend=one.backend, reason="its supports") for one in found]
        try:
            found.append(_first(op, call, refused).implementation)
        except NoImplementationError:
            break
    return found


def _first(op: Op, call: Call, refused: list[Candidate]) -> Selection:
    """The first in order that takes a call; `refused` are those asked already."""
    order = [name for name in candidates_of(op) if registry.backends()[name].auto]
    if refused and op.fallback_backend is not None:
        order.insert(0, registry.backend_name(op.fallback_backend))
    for name in dict.fromkeys(order):
        if any(name == one.backend for one in refused):
            continue
        examined = examine(op, name, call)
        if examined.implementation is not None and examined.supports:
            told = "".join(f"; not {one.backend}: {one.reason}" for one in refused)
            passed_over = tuple(one.implementation for one in refused if one.implementation and one.by_supports)
            return Selection(
                implementation=examined.implementation, reason=f"auto: first in order{told}", passed_over=passed_over
            )
        refused.append(examined)
    raise _nobody(op, call, refused)


def _refusal(op: Op, wanted: Candidate, call: Call) -> Exception:
    """What to raise when the backend that the call names cannot take it."""
    start = f"{op.name}: backend {wanted.backend!r}"
    if not wanted.discovered:
        others = listed(candidates_of(op), empty="no installed backend")
        why = " has no implementation of it" if wanted.error is None else f": {wanted.reason}"
        error = NoImplementationError(f"{start}{why}; implemented by: {others}")
        error.__cause__ = wanted.error
        return error
    if not wanted.usable:
        return BackendUnavailableError(f"{start} cannot run here: {wanted.reason}")
    if wanted.implementation is None:
        error = NoImplementationError(f"{start}: {wanted.reason}")
        error.__cause__ = wanted.error
        return error
    if op.unknown_options(wanted.implementation, call.options):
        known = listed(op.options_of(wanted.implementation))
        return ArgumentTypeError(f"{start}: {wanted.reason}; options known: {known}")
    others_text = _reasons(op, call, skip=wanted.backend)
    return NoImplementationError(f"{start} refuses this call: {wanted.reason}.{others_text}")


def _reasons(op: Op, call: Call, skip: str = "") -> str:
    rows = [examine(op, name, call) for name in candidates_of(op) if name != skip]
    return "".join(f"\n  {row.backend}: {row.reason or 'takes it'}" for row in rows)


def warn_of_fallback(op: Op, selection: Selection) -> None:
    """Warn, once per op and backend, if another backend serves than the one preferred."""
    missed = selection.fallen_from
    if missed is None or settings().fallback != "warn" or not once((op.name, missed)):
        return
    warnings.warn(
        f"{op.name}: {selection.reason}. Backend {selection.implementation.backend!r} serves; TILEGYM_FALLBACK=error "
        "makes this an error.",
        FallbackWarning,
        stacklevel=4,
    )


def _nobody(op: Op, call: Call, refused: list[Candidate]) -> Exception:
    loaded = [one.implementation for one in refused if one.implementation is not None]
    if call.options and loaded and all(op.unknown_options(one, call.options) for one in loaded):
        known = {option for one in loaded for option in op.options_of(one)}
        return ArgumentTypeError(f"{op.name}: unknown option(s) {listed(call.options)}; options known: {listed(known)}")
    if not any(one.discovered for one in refused):
        return NoImplementationError(
            f"{op.name}: no installed backend implements it. For the one in plain PyTorch, "
            f"{availability.install_hint('tilegym-torchref')}{availability.left_out()}"
        )
    rows = "".join(f"\n  {one.backend}: {one.reason}" for one in refused)
    return NoImplementationError(f"{op.name}: no backend can take this call:{rows}")
