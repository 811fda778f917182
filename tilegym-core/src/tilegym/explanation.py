"""Tells, without launching anything, which backend a call would run on, and why no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilegym import registry
from tilegym.calls import bound, describe_call
from tilegym.choice import preference
from tilegym.errors import ArgumentTypeError, TileGymError
from tilegym.selection import Call, Candidate, candidates_of, examine, select, warn_of_fallback

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, ConsoleOptions, RenderResult

    from tilegym.op import Op


def op_of(op: str | Callable[..., Any]) -> Op:
    """The op of a name or of its public function.

    Raises:
        UnknownOpError: nothing has this name.
        ArgumentTypeError: it is neither.
    """
    if isinstance(op, str):
        return registry.get_op(op)
    found: Op | None = getattr(op, "__tilegym_op__", None)
    if found is None:
        raise ArgumentTypeError(f"expected an op or its name, got {op!r}")
    return found


def resolve(op: str | Callable[..., Any], *args: Any, backend: str | None = None, **kwargs: Any) -> Callable[..., Any]:
    """The plain function that a call would run; it takes canonical arguments and checks nothing.

    Without arguments, the one that would serve the first call that anybody can take.

    Raises:
        ValueError, NotImplementedError: as the call would.
    """
    found = op_of(op)
    selection = select(found, backend, _call(found, args, kwargs))
    warn_of_fallback(found, selection)
    return selection.implementation.function


def _call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return describe_call(op, *bound(op, args, kwargs)) if args or kwargs else Call()


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Which backend a call would run on. `str()` gives a table; rich renders it; `to_dict()` is for programs."""

    op: str
    preference: str
    """The backend preferred, or "auto"."""
    origin: str
    """Who prefers it: call, scope, set_backend, TILEGYM_BACKEND or auto."""
    candidates: tuple[Candidate, ...]
    chosen: str | None
    """The backend that would run; None if the call would raise."""
    reason: str
    """Why it, or what the call would raise."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        rows = [
            {
                "backend": one.backend,
                "discovered": one.discovered,
                "usable": one.usable,
                "importable": one.importable,
                "supports": one.supports,
                "reason": one.reason,
            }
            for one in self.candidates
        ]
        return {
            "op": self.op,
            "preference": self.preference,
            "origin": self.origin,
            "chosen": self.chosen,
            "reason": self.reason,
            "candidates": rows,
        }

    def __str__(self) -> str:
        """A table in plain text."""
        lines = [f"{self.op}: {self.chosen or 'no backend'} ({self.reason})"]
        width = max((len(one.backend) for one in self.candidates), default=0)
        lines += [f"  {one.backend:{width}}  {one.reason or 'takes this call'}" for one in self.candidates]
        return "\n".join(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A table in a terminal."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{self.op}: {self.chosen or 'no backend'}", caption=self.reason)
        for heading in ("backend", "usable", "importable", "takes this call", "reason"):
            table.add_column(heading)
        for one in self.candidates:
            marks = ("yes" if state else "no" for state in (one.usable, one.importable, one.supports))
            table.add_row(*map(Text, (one.backend, *marks, one.reason or "")))
        yield table


def explain(op: str | Callable[..., Any], *args: Any, backend: str | None = None, **kwargs: Any) -> Explanation:
    """Tell, without launching anything, each candidate's state for a call, and the choice.

    Args:
        op: an op or its name.
        *args: the call's arguments; none: whether the backends could serve the op at all.
        backend: as in the call.
        **kwargs: the call's keyword arguments.
    """
    found = op_of(op)
    call = _call(found, args, kwargs)
    preferred, origin = preference(found.name, backend)
    named = [name for name in [registry.backend_name(preferred)] if name in registry.backends()]
    try:
        selection = select(found, backend, call)
        chosen, reason = selection.implementation.backend, selection.reason
    except (TileGymError, ImportError) as error:
        chosen, reason = None, str(error).partition("\n")[0]
    return Explanation(
        op=found.name,
        preference=preferred,
        origin=origin,
        candidates=tuple(examine(found, name, call) for name in dict.fromkeys([*candidates_of(found), *named])),
        chosen=chosen,
        reason=reason,
    )
