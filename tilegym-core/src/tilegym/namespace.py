"""What `tilegym.ops` shows: ops, interfaces, groups and packs of ops, found by file name."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any, Final

from tilegym import registry
from tilegym.errors import RegistrationError, UnknownOpError
from tilegym.hookspecs import CORE_PACK
from tilegym.plugins import catalogue
from tilegym.text import listed, nearest

_INTERFACES: Final = "tilegym.interfaces"
_GROUPS: Final = "tilegym.ops"  # its modules show some ops by a second name


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
    """The op, interface, group or pack of a name.

    Raises:
        UnknownOpError: an AttributeError that says what there is.
        RegistrationError: the interface's file defines nothing of its name.
    """
    if name == "__all__":
        return names()  # for `from tilegym.ops import *`
    if name.startswith("_"):
        raise AttributeError(f"module 'tilegym.ops' has no attribute {name!r}")
    op = registry.find_op(name)
    if op is not None:
        return op.function
    if name in registry.files_of(_INTERFACES):
        return _interface(name)
    if name in registry.files_of(_GROUPS):
        return importlib.import_module(f"{_GROUPS}.{name}")
    if name in catalogue().op_packs and name != CORE_PACK:
        return PackNamespace(name)
    known = names()
    raise UnknownOpError(f"no op named {name!r}.{nearest(name, known)} Known: {listed(known)}")


def _interface(name: str) -> Any:
    module = importlib.import_module(f"{_INTERFACES}.{name}")
    found = vars(module).get(name)
    if found is None:
        raise RegistrationError(f"{module.__file__} defines no {name!r}: a file there is named after its one function")
    return found


def names() -> list[str]:
    """Every name that `tilegym.ops` shows; imports none of their files."""
    ops = [name for name in registry.op_names() if "." not in name]
    packs = [name for name in catalogue().op_packs if name != CORE_PACK]
    return sorted({*ops, *registry.files_of(_INTERFACES), *registry.files_of(_GROUPS), *packs})
