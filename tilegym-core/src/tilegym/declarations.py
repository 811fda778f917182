"""Reads what a plugin module declares through its hooks, and refuses what is not as `tilegym.hookspecs` says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pluggy

from tilegym import hookspecs
from tilegym.config import canonical_name
from tilegym.errors import RegistrationError
from tilegym.hookspecs import API_VERSION, CORE_PACK, PROJECT, Backend, Command, Conformance, ImplPack, OpPack
from tilegym.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

T = TypeVar("T")

_BACKEND_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RESERVED_NAMES: Final = frozenset({"auto"})
_CORES_PLUGIN: Final = "tilegym.builtin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """What one plugin module declares, checked and in canonical form."""

    backends: tuple[Backend, ...] = ()
    op_packs: tuple[OpPack, ...] = ()
    impl_packs: tuple[ImplPack, ...] = ()
    commands: tuple[Command, ...] = ()
    conformance: tuple[Conformance, ...] = ()
    on_dispatch: Callable[..., Any] | None = None
    """The module's own `tilegym_on_dispatch`, to be called with `event=`."""


def read(module: ModuleType) -> Declarations:
    """Call a plugin module's hooks.

    Raises:
        RegistrationError: it declares something that is not as `tilegym.hookspecs` says.
        Exception: whatever pluggy, or a hook itself, raises.
    """
    api = getattr(module, "TILEGYM_API", None)
    if api != API_VERSION:
        raise RegistrationError(
            f"{module.__name__} must state TILEGYM_API = {API_VERSION}, the plugin API of this tilegym-core; "
            f"got {api!r}"
        )
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs.Hooks)
    manager.register(module)
    manager.check_pending()
    callers = manager.get_hookcallers(module)
    if not callers:
        raise RegistrationError(
            f"{module.__name__} marks no hook; decorate its functions with tilegym.hookspecs.hookimpl"
        )
    for caller in callers:
        if any(impl.wrapper or impl.hookwrapper for impl in caller.get_hookimpls()):
            raise RegistrationError(f"{module.__name__}.{caller.name}: hook wrappers are not accepted")
    hooks = manager.hook
    found = Declarations(
        backends=tuple(_checked_backend(one) for one in _collect(module, hooks.tilegym_backends, Backend)),
        op_packs=tuple(_checked_op_pack(one, module) for one in _collect(module, hooks.tilegym_op_packs, OpPack)),
        impl_packs=tuple(_checked_impl_pack(one) for one in _collect(module, hooks.tilegym_impl_packs, ImplPack)),
        commands=_collect(module, hooks.tilegym_commands, Command),
        conformance=_collect(module, hooks.tilegym_conformance, Conformance),
        on_dispatch=hooks.tilegym_on_dispatch if hooks.tilegym_on_dispatch.get_hookimpls() else None,
    )
    names = [name for backend in found.backends for name in (backend.name, *backend.aliases)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise RegistrationError(f"{module.__name__} declares more than one backend as {listed(twice)}")
    return found


def _collect(module: ModuleType, caller: pluggy.HookCaller, kind: type[T]) -> tuple[T, ...]:
    """What a hook returns. Its function is called as it is: pluggy would drop a None that was returned by mistake."""
    found: list[T] = []
    for impl in caller.get_hookimpls():
        result = impl.function()
        if not isinstance(result, (list, tuple)) or not all(isinstance(item, kind) for item in result):
            raise RegistrationError(
                f"{module.__name__}.{caller.name}: expected a list of {kind.__name__}, got {result!r}"
            )
        found.extend(result)
    return tuple(found)


def checked_backend_name(name: object) -> str:
    """The canonical form of a backend's name.

    Raises:
        RegistrationError: it is not a string, or not of the form that `backend=` takes.
    """
    if not isinstance(name, str):
        raise RegistrationError(f"a backend's name must be a string, got {name!r}")
    canonical = canonical_name(name)
    if not _BACKEND_NAME.fullmatch(canonical) or canonical in _RESERVED_NAMES:
        raise RegistrationError(
            f"{name!r} cannot name a backend: expected lower-case letters, digits and '-', beginning with a letter, "
            f"and none of {listed(_RESERVED_NAMES)}"
        )
    return canonical


def _checked_backend(backend: Backend) -> Backend:
    name = checked_backend_name(backend.name)
    for what, values in (("aliases", backend.aliases), ("device_types", backend.device_types)):
        if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
            raise RegistrationError(f"backend {name!r}: {what} must be a tuple of strings, got {values!r}")
    if not isinstance(backend.priority, int):
        raise RegistrationError(f"backend {name!r}: priority must be an int, got {backend.priority!r}")
    for what in ("probe", "setup", "facts", "compile_ahead"):
        function = getattr(backend, what)
        if function is not None and not callable(function):
            raise RegistrationError(f"backend {name!r}: {what} must be a function or None, got {function!r}")
    aliases = tuple(checked_backend_name(alias) for alias in backend.aliases)
    return replace(backend, name=name, aliases=aliases, device_types=tuple(backend.device_types))


def _checked_op_pack(pack: OpPack, module: ModuleType) -> OpPack:
    if not isinstance(pack.name, str) or not pack.name.isidentifier() or pack.name.startswith("_"):
        raise RegistrationError(f"{pack.name!r} cannot name an op pack: expected a public Python identifier")
    if pack.name == CORE_PACK and module.__name__ != _CORES_PLUGIN:
        raise RegistrationError(f"op pack {CORE_PACK!r} is core's own; give yours another name")
    return replace(pack, package=_checked_package(pack.package))


def _checked_impl_pack(pack: ImplPack) -> ImplPack:
    return replace(pack, backend=checked_backend_name(pack.backend), package=_checked_package(pack.package))


def _checked_package(package: object) -> str:
    if not isinstance(package, str):
        raise RegistrationError(f"a pack's package must be the name of an import package, got {package!r}")
    return package
