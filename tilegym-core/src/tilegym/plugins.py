"""Finds the installed plugins and loads them, each apart from the others.

A plugin that fails, in whatever way, is left out whole, with its exception kept as the reason; the rest goes on.
No lock is held while plugin code runs: threads that load at the same time each load, and the first to finish is kept
(Python itself runs a module's body once).
"""

from __future__ import annotations

import importlib
import re
import threading
import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import importlib_metadata
import pluggy

from _tilegym_cli.foreign import FOREIGN_REPAIR, foreign_distribution
from tilegym import hookspecs
from tilegym.config import canonical_name, settings
from tilegym.errors import PluginError, PluginWarning, RegistrationError
from tilegym.hookspecs import API_VERSION, CORE_PACK, PROJECT, Backend, Command, Conformance, ImplPack, OpPack
from tilegym.text import describe, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import ModuleType

_BACKEND_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_RESERVED_NAMES: Final = frozenset({"auto"})
_BUILTIN: Final = "tilegym.builtin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """One entry point, loaded or refused."""

    name: str
    """The entry point's name."""
    distribution: str
    version: str
    value: str
    """The module that the entry point names."""
    backends: tuple[Backend, ...] = ()
    op_packs: tuple[OpPack, ...] = ()
    impl_packs: tuple[ImplPack, ...] = ()
    commands: tuple[Command, ...] = ()
    conformance: tuple[Conformance, ...] = ()
    on_dispatch: Callable[..., Any] | None = None
    """The plugin's own `tilegym_on_dispatch` hook caller, if it has one."""
    skipped: str | None = None
    """Why it was never imported, if the environment says so."""
    error: BaseException | None = None
    """Why it was left out, if it failed."""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"plugin {self.name!r} ({self.value}) of distribution {self.distribution} {self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """What the installed plugins declare, joined."""

    plugins: tuple[Plugin, ...]
    backends: Mapping[str, Backend] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Every backend name and alias → the backend's name."""
    owners: Mapping[str, Plugin] = field(default_factory=dict)
    """Backend name → the plugin that declared it."""
    op_packs: Mapping[str, OpPack] = field(default_factory=dict)
    impl_packs: tuple[ImplPack, ...] = ()
    failed_names: Mapping[str, Plugin] = field(default_factory=dict)
    """Names that a refused plugin claimed, or goes by."""


class _Loading(threading.local):
    active = False


_loading = _Loading()
_lock = threading.Lock()
_catalogue: Catalogue | None = None


def catalogue() -> Catalogue:
    """What is installed; loaded on first use."""
    global _catalogue  # noqa: PLW0603 - the one catalogue of the process
    known = _catalogue
    if known is not None:
        return known
    if _loading.active:
        raise RegistrationError(
            "a plugin module asked tilegym for backends or ops while it was being loaded; "
            "a plugin module may only declare, so move that code into a function that is called later"
        )
    _loading.active = True
    try:
        loaded = _join(_load(entry) for entry in _entries())
    finally:
        _loading.active = False
    if settings().strict:
        _raise_first_failure(loaded)
    with _lock:
        first = _catalogue is None
        if first:
            _catalogue = loaded
        known = _catalogue
    if first:
        _warn_of_failures(loaded)
    return known


def forget() -> None:
    """Load the plugins again on next use, and resolve every op again."""
    global _catalogue  # noqa: PLW0603 - the one catalogue of the process
    from tilegym import availability, choice, registry

    with _lock:
        _catalogue = None
    availability.forget()
    choice.forget()
    registry.forget_files()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    name: str
    value: str
    distribution: str
    version: str


def _entries() -> Iterator[_Entry]:
    yield _Entry(name="builtin", value=_BUILTIN, distribution="tilegym-core", version=_core_version())
    found = set()
    for point in importlib_metadata.entry_points(group=PROJECT):
        dist = point.dist
        name, version = (dist.metadata["Name"], dist.version) if dist is not None else ("(unknown)", "?")
        found.add(_Entry(name=point.name, value=point.value, distribution=str(name), version=str(version)))
    yield from sorted(found, key=lambda entry: (canonical_name(entry.distribution), entry.name, entry.value))


def _core_version() -> str:
    from tilegym.__about__ import __version__

    return __version__


def _load(entry: _Entry) -> Plugin:
    plugin = Plugin(name=entry.name, value=entry.value, distribution=entry.distribution, version=entry.version)
    reason = _not_wanted(entry)
    if reason is not None:
        return replace(plugin, skipped=reason)
    try:
        return _declared(plugin, importlib.import_module(entry.value))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does, it fails alone
        return replace(plugin, error=error)


def _not_wanted(entry: _Entry) -> str | None:
    if entry.value == _BUILTIN:
        return None
    chosen, names = settings(), {canonical_name(entry.name), canonical_name(entry.distribution)}
    if names & chosen.disable_plugins:
        return "named in TILEGYM_DISABLE_PLUGINS"
    if chosen.plugins is not None and not names & chosen.plugins:
        return "not named in TILEGYM_PLUGINS"
    return None


def _declared(plugin: Plugin, module: ModuleType) -> Plugin:
    """The plugin with what its hooks return, every declaration checked."""
    api = getattr(module, "TILEGYM_API", None)
    if api != API_VERSION:
        raise RegistrationError(
            f"{module.__name__} must state TILEGYM_API = {API_VERSION}, the plugin API of this tilegym-core; got {api!r}"
        )
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs.Hooks)
    manager.register(module, plugin.name)
    manager.check_pending()
    callers = manager.get_hookcallers(module) or []
    if not callers:
        raise RegistrationError(
            f"{module.__name__} marks no hook; decorate its functions with tilegym.hookspecs.hookimpl"
        )
    for caller in callers:
        if any(impl.wrapper or impl.hookwrapper for impl in caller.get_hookimpls()):
            raise RegistrationError(f"{module.__name__}.{caller.name}: hook wrappers are not accepted")

    def collect(hook: str, kind: type) -> tuple[Any, ...]:
        found: list[Any] = []
        for result in getattr(manager.hook, hook)():
            if not isinstance(result, (list, tuple)) or not all(isinstance(item, kind) for item in result):
                raise RegistrationError(f"{module.__name__}.{hook}: expected a list of {kind.__name__}, got {result!r}")
            found.extend(result)
        return tuple(found)

    listens = bool(manager.hook.tilegym_on_dispatch.get_hookimpls())
    return replace(
        plugin,
        backends=tuple(_checked_backend(backend) for backend in collect("tilegym_backends", Backend)),
        op_packs=tuple(_checked_pack(pack, plugin) for pack in collect("tilegym_op_packs", OpPack)),
        impl_packs=tuple(
            replace(pack, backend=canonical_name(pack.backend)) for pack in collect("tilegym_impl_packs", ImplPack)
        ),
        commands=collect("tilegym_commands", Command),
        conformance=collect("tilegym_conformance", Conformance),
        on_dispatch=manager.hook.tilegym_on_dispatch if listens else None,
    )


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
    return replace(
        backend,
        name=checked_backend_name(backend.name),
        aliases=tuple(checked_backend_name(alias) for alias in backend.aliases),
    )


def _checked_pack(pack: OpPack, plugin: Plugin) -> OpPack:
    if not pack.name.isidentifier() or pack.name.startswith("_"):
        raise RegistrationError(f"{pack.name!r} cannot name an op pack: expected a public Python identifier")
    if pack.name == CORE_PACK and plugin.value != _BUILTIN:
        raise RegistrationError(f"op pack {CORE_PACK!r} is core's own; give yours another name")
    return pack


def _claims(plugin: Plugin) -> set[tuple[str, str]]:
    backends = {("backend", name) for backend in plugin.backends for name in (backend.name, *backend.aliases)}
    return backends | {("op pack", pack.name) for pack in plugin.op_packs}


def _join(plugins: Iterable[Plugin]) -> Catalogue:
    """One catalogue of all; a name that two plugins claim belongs to neither."""
    loaded = list(plugins)
    claimed: dict[tuple[str, str], list[Plugin]] = {}
    for plugin in loaded:
        for claim in _claims(plugin):
            claimed.setdefault(claim, []).append(plugin)
    conflicts = {claim: owners for claim, owners in claimed.items() if len(owners) > 1}
    for (kind, name), owners in conflicts.items():
        who = " and ".join(owner.label for owner in owners)
        error = RegistrationError(f"{kind} {name!r} is claimed by {who}; uninstall or disable one of them")
        loaded = [
            replace(plugin, error=plugin.error or error)
            if any(plugin.value == owner.value for owner in owners)
            else plugin
            for plugin in loaded
        ]
    good = [plugin for plugin in loaded if plugin.error is None]
    backends = {backend.name: backend for plugin in good for backend in plugin.backends}
    failed: dict[str, Plugin] = {}
    for plugin in loaded:
        if plugin.error is not None:
            names = {name for kind, name in _claims(plugin) if kind == "backend"}
            failed.update(dict.fromkeys(names | {canonical_name(plugin.name)}, plugin))
    return Catalogue(
        plugins=tuple(loaded),
        backends=backends,
        names={name: backend.name for backend in backends.values() for name in (backend.name, *backend.aliases)},
        owners={backend.name: plugin for plugin in good for backend in plugin.backends},
        op_packs={pack.name: pack for plugin in good for pack in plugin.op_packs},
        impl_packs=tuple(pack for plugin in good for pack in plugin.impl_packs),
        failed_names={name: plugin for name, plugin in failed.items() if name not in backends},
    )


def _raise_first_failure(loaded: Catalogue) -> None:
    for plugin in loaded.plugins:
        if plugin.error is not None:
            raise PluginError(f"{plugin.label} failed to load: {describe(plugin.error)}") from plugin.error


def _warn_of_failures(loaded: Catalogue) -> None:
    for plugin in loaded.plugins:
        if plugin.error is not None:
            warnings.warn(f"{plugin.label} was left out: {describe(plugin.error)}", PluginWarning, stacklevel=3)
    if foreign_distribution() is not None:
        warnings.warn(FOREIGN_REPAIR, PluginWarning, stacklevel=3)
