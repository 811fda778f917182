"""Which backend is preferred: call > `use_backend` scope > `set_backend` > `TILEGYM_BACKEND` > auto.

The process default is one value; a scope is a `ContextVar`, so that threads and asyncio tasks do not see each other's.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from tilegym import registry
from tilegym.config import canonical_name, settings
from tilegym.errors import BackendUnavailableError, EnvironmentWarning, UnknownOpError
from tilegym.notices import once
from tilegym.text import listed, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

AUTO: Final = "auto"
Origin = Literal["call", "scope", "set_backend", "TILEGYM_BACKEND", "auto"]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A preference for all ops, or for single ones; interned, so that tables are keyed by identity."""

    backend: str | None
    per_op: tuple[tuple[str, str], ...] = ()

    def for_op(self, op: str) -> str | None:
        """The backend preferred for an op; None: not said."""
        return dict(self.per_op).get(op, self.backend)


_interned: dict[tuple[str | None, tuple[tuple[str, str], ...]], Choice] = {}
default: str | None = None
"""What `set_backend` prefers in the whole process; compiled code is guarded on it."""
_scope: ContextVar[Choice | None] = ContextVar("tilegym_backend", default=None)
_left_behind: ContextVar[tuple[Choice | None, ...]] = ContextVar("tilegym_outer_backends", default=())
_LAZY_KINDS: Final = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
scoped = _scope.get
"""The innermost scope's choice, or None: called on every op call."""


def _scope_text() -> str:
    choice = _scope.get()
    return "" if choice is None else f"{choice.backend} {choice.per_op}"


def __getattr__(name: str) -> str:
    """`scope_text`: the scope's choice as text. Compiled code is guarded on it.

    The compiler cannot trace a ContextVar. An attribute that the module computes is a constant to it, and its guard
    asks for the attribute anew before every call: so the text is that of the caller's own thread, task or context.
    """
    if name == "scope_text":
        return _scope_text()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _intern(backend: str | None, per_op: dict[str, str]) -> Choice:
    key = (backend, tuple(sorted(per_op.items())))
    return _interned.setdefault(key, Choice(*key))


def _checked(name: str) -> str:
    """The canonical name of a backend that is usable here.

    Raises:
        UnknownBackendError, BackendUnavailableError: as they say.
    """
    from tilegym import availability

    if canonical_name(name) == AUTO:
        return AUTO
    backend = availability.find_backend(name)
    reason = availability.why_unusable(backend)
    if reason is not None:
        raise BackendUnavailableError(f"backend {backend.name!r} cannot run here: {reason}")
    return backend.name


def set_backend(backend: str) -> None:
    """Prefer a backend in the whole process, until changed; "auto" resets.

    Raises:
        ValueError: nothing provides it, or it cannot run here; the message says why.
    """
    name = _checked(backend)
    restore(None if name == AUTO else name)


def get_current_backend() -> str:
    """The backend preferred by the innermost scope, `set_backend` or `TILEGYM_BACKEND`; "auto" if nothing is."""
    scope = _scope.get()
    return (scope and scope.backend) or default or _from_environment() or AUTO


def use_backend(backend: str | None = None, /, **per_op: str) -> Scope:
    """Prefer a backend inside a `with` block or a decorated function, in this thread or task alone.

    `use_backend("cutile")` is for all ops, `use_backend(softmax="torch")` for one; scopes nest, the inner one counts.

    Raises:
        ValueError: nothing provides it, or it cannot run here; the message says why.
    """
    if backend is None and not per_op:
        raise TypeError('use_backend needs a backend, for all ops or for one: use_backend("torch", softmax="cutile")')
    known = registry.op_names() if per_op else []
    for op in per_op:
        if op not in known:
            raise UnknownOpError(f"no op named {op!r}.{nearest(op, known)} Known: {listed(known)}")
    for_all = None if backend is None else _checked(backend)
    return Scope(for_all, {op: _checked(name) for op, name in per_op.items()})


class Scope:
    """What `use_backend` returns: a `with` block that may be entered any number of times, and a decorator."""

    def __init__(self, backend: str | None, per_op: dict[str, str]) -> None:
        """Of checked names."""
        self._backend = backend
        self._per_op = per_op

    def __enter__(self) -> None:
        """Prefer, until left."""
        outer = _scope.get()
        _left_behind.set((*_left_behind.get(), outer))
        per_op = self._per_op if self._backend or outer is None else dict(outer.per_op) | self._per_op
        backend = self._backend or (outer.backend if outer is not None else None)
        _scope.set(_intern(backend, per_op))

    def __exit__(self, *exception: object) -> None:
        """Prefer what was preferred outside."""
        *others, outer = _left_behind.get()
        _left_behind.set(tuple(others))
        _scope.set(outer)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, run inside the scope."""
        if any(lazy(function) for lazy in _LAZY_KINDS):
            raise TypeError(
                f"use_backend cannot decorate {function!r}, whose body runs after the call has returned; "
                "write `with tilegym.use_backend(...):` inside it"
            )

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside


def preference(op: str, call: str | None) -> tuple[str, Origin]:
    """The backend preferred for a call of an op, and who said so."""
    if call is not None:
        return call, "call"
    scope = _scope.get()
    name = scope.for_op(op) if scope is not None else None
    if name is not None:
        return name, "scope"
    if default is not None:
        return default, "set_backend"
    name = _from_environment()
    return (name, "TILEGYM_BACKEND") if name is not None else (AUTO, "auto")


def _from_environment() -> str | None:
    """The usable backend that `TILEGYM_BACKEND` names; one that cannot run here is told once and ignored."""
    from tilegym import availability

    name = settings().backend
    if name is None or name == AUTO:
        return None
    backend = availability.find_backend(name, where="environment variable TILEGYM_BACKEND: ")
    reason = availability.why_unusable(backend)
    if reason is None:
        return backend.name
    if once(("TILEGYM_BACKEND", name)):
        warnings.warn(
            f"TILEGYM_BACKEND={name} is ignored: backend {backend.name!r} cannot run here: {reason}",
            EnvironmentWarning,
            stacklevel=4,
        )
    return None


def state() -> str | None:
    """The process default, for a test fixture that restores it."""
    return default


def restore(state: str | None) -> None:
    """Set the process default back to what `state()` returned."""
    global default  # noqa: PLW0603 - the process default is one
    default = state
    registry.changed(in_registry=False)
