"""Small helpers for messages that people read."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def listed(names: Iterable[str], *, empty: str = "none") -> str:
    """`a, b, c`, sorted."""
    return ", ".join(sorted(names)) or empty


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def nearest(name: str, names: Iterable[str], *, alike: float = 0.6) -> str:
    """` Did you mean 'softmax'?`, or nothing if no name is as near as `alike` (1: the same)."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=alike)
    return f" Did you mean {found[0]!r}?" if found else ""


def describe(error: BaseException) -> str:
    """`ImportError: no module x`: an exception in one line."""
    message = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
