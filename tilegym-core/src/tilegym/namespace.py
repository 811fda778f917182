"""What `tilegym.ops` shows: ops and packs of ops, found by file name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tilegym import registry
from tilegym.errors import UnknownOpError
from tilegym.hookspecs import CORE_PACK
from tilegym.plugins import catalogue
from tilegym.text import listed, nearest


class PackNamespace(SimpleNamespace):
    """`tilegym.ops.<pack>`: the ops of one pack that another distribution brings."""

    def __init__(self, pack: str) -> None:
        """Show the ops of a pack."""
        super().__init__()
        self._pack = pack

    def __getattr__(self, name: str) -> Any:
        """The op of this name."""
        if name.startswith("_"):
            raise AttributeError(name)
        return registry.get_op(registry.qualified(self._pack, name)).function

    def __dir__(self) -> list[str]:
        """Names of the pack's ops."""
        return sorted(registry.files_of(catalogue().op_packs[self._pack].package))


def find(name: str) -> Any:
    """The op or pack of a name.

    Raises:
        UnknownOpError: an AttributeError that says what there is.
    """
    if name.startswith("_"):
        raise AttributeError(f"module 'tilegym.ops' has no attribute {name!r}")
    if name in registry.op_names():
        return registry.get_op(name).function
    if name in catalogue().op_packs and name != CORE_PACK:
        return PackNamespace(name)
    known = names()
    raise UnknownOpError(f"no op named {name!r}.{nearest(name, known)} Known: {listed(known)}")


def names() -> list[str]:
    """Every name that `tilegym.ops` shows; imports no spec."""
    ops = [name for name in registry.op_names() if "." not in name]
    packs = [name for name in catalogue().op_packs if name != CORE_PACK]
    return sorted([*ops, *packs])
