"""What people have been told already, so that a warning comes once and not on every call."""

from __future__ import annotations

_told: set[object] = set()


def once(what: object) -> bool:
    """Whether people have not been told of this yet; from now on they have."""
    if what in _told:
        return False
    _told.add(what)
    return True


def forget() -> None:
    """Tell people anew of everything."""
    _told.clear()
