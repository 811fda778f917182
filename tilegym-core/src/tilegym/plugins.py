"""Finds the installed plugins and loads them, each apart from the others.

A plugin that fails, in whatever way, is left out whole, with its exception kept as the reason; the rest goes on.
No lock is held while plugin code runs: threads that load at the same time each load, and the first to finish is kept
(Python itself runs a module's body once).
"""

from __future__ import annotations

import importlib
import threading
import warnings
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import importlib_metadata

from _tilegym_cli.foreign import FOREIGN_REPAIR, foreign_distribution
from tilegym import declarations, notices
from tilegym.__about__ import __version__
from tilegym.config import canonical_name, settings
from tilegym.errors import ConfigError, PluginError, PluginWarning, RegistrationError
from tilegym.hookspecs import PROJECT
from tilegym.log import logger
from tilegym.text import describe, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tilegym.hookspecs import Backend, Command, Conformance, ImplPack, OpPack

_BUILTIN: Final = "tilegym.builtin"
_ALIKE: Final = 0.8
"""How near a name in TILEGYM_PLUGINS must be to an installed one to count as a slip of the pen."""


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
    problems = misspelt_names()
    if problems:
        raise ConfigError("; ".join(problems))
    _loading.active = True
    try:
        loaded = _join([_load(plugin) for plugin in _entries()])
    finally:
        _loading.active = False
    if settings().strict:
        _raise_first_failure(loaded)
    with _lock:
        first = _catalogue is None
        known = _catalogue = _catalogue or loaded
    if first:
        for plugin in loaded.plugins:
            logger.info("%s: %s", plugin.label, plugin.skipped or ("left out" if plugin.error else "loaded"))
        _warn_of_failures(loaded)
    return known


def forget() -> None:
    """Load the plugins again on next use, and resolve every op again."""
    global _catalogue  # noqa: PLW0603 - the one catalogue of the process
    from tilegym import availability, registry

    with _lock:
        _catalogue = None
    availability.forget()
    notices.forget()
    registry.forget_files()


def _entries() -> list[Plugin]:
    """Every installed plugin, not loaded yet, core's own first."""
    found = {_plugin(point) for point in _entry_points()}
    core = Plugin(name="builtin", value=_BUILTIN, distribution="tilegym-core", version=__version__)
    return [core, *sorted(found, key=lambda plugin: (canonical_name(plugin.distribution), plugin.name, plugin.value))]


def _plugin(point: importlib_metadata.EntryPoint) -> Plugin:
    distribution, version = _identity(point.dist)
    return Plugin(name=point.name, value=point.value, distribution=distribution, version=version)


def _entry_points() -> Iterable[importlib_metadata.EntryPoint]:
    try:
        return importlib_metadata.entry_points(group=PROJECT)
    except Exception:  # noqa: BLE001 - some distribution's entry_points.txt is broken; the others' still count
        return list(_readable_entry_points())


def _readable_entry_points() -> Iterator[importlib_metadata.EntryPoint]:
    for distribution in importlib_metadata.distributions():
        try:
            yield from distribution.entry_points.select(group=PROJECT)
        except Exception as error:  # noqa: BLE001, PERF203 - told, and left out
            where = " ".join(_identity(distribution))
            message = f"distribution {where}: its entry_points.txt cannot be read: {describe(error)}"
            warnings.warn(message, PluginWarning, stacklevel=2)


def _identity(distribution: Any) -> tuple[str, str]:
    """A distribution's name and version, as far as its metadata can be read."""
    try:
        return str(distribution.metadata["Name"]), str(distribution.version)
    except Exception:  # noqa: BLE001 - a folder without METADATA: its plugin may be whole nevertheless
        return "(damaged metadata)", "?"


def misspelt_names() -> list[str]:
    """What is wrong with TILEGYM_PLUGINS and TILEGYM_DISABLE_PLUGINS: names that look like installed ones misspelt."""
    chosen = settings()
    if chosen.plugins is None and not chosen.disable_plugins:
        return []
    installed = sorted({name for plugin in _entries() for name in _names(plugin)})
    given = {"TILEGYM_PLUGINS": chosen.plugins or (), "TILEGYM_DISABLE_PLUGINS": chosen.disable_plugins}
    return [
        f"environment variable {variable}: no plugin or distribution {name!r} is installed.{hint} "
        f"Installed: {listed(installed)}"
        for variable, names in given.items()
        for name in sorted(set(names) - set(installed))
        if (hint := nearest(name, installed, alike=_ALIKE))
    ]


def _names(plugin: Plugin) -> set[str]:
    """What the environment may call it."""
    return {canonical_name(plugin.name), canonical_name(plugin.distribution)}


def _load(plugin: Plugin) -> Plugin:
    reason = _not_wanted(plugin)
    if reason is not None:
        return replace(plugin, skipped=reason)
    try:
        found = declarations.read(importlib.import_module(plugin.value))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does, it fails alone
        return replace(plugin, error=error)
    return replace(plugin, **{one.name: getattr(found, one.name) for one in fields(found)})


def _not_wanted(plugin: Plugin) -> str | None:
    if plugin.value == _BUILTIN:
        return None
    chosen, names = settings(), _names(plugin)
    if names & chosen.disable_plugins:
        return "named in TILEGYM_DISABLE_PLUGINS"
    if chosen.plugins is not None and not names & chosen.plugins:
        return "not named in TILEGYM_PLUGINS"
    return None


def _claims(plugin: Plugin) -> set[tuple[str, str]]:
    backends = {("backend", name) for backend in plugin.backends for name in (backend.name, *backend.aliases)}
    return backends | {("op pack", pack.name) for pack in plugin.op_packs}


def _join(loaded: list[Plugin]) -> Catalogue:
    """One catalogue of all; a name that two plugins claim belongs to neither."""
    claimed: dict[tuple[str, str], list[Plugin]] = {}
    for plugin in loaded:
        for claim in _claims(plugin):
            claimed.setdefault(claim, []).append(plugin)
    conflicts = {claim: owners for claim, owners in claimed.items() if len(owners) > 1}
    for (kind, name), owners in conflicts.items():
        who = " and ".join(owner.label for owner in owners)
        error = RegistrationError(f"{kind} {name!r} is claimed by {who}; uninstall or disable one of them")
        labels = {owner.label for owner in owners}
        loaded = [
            replace(plugin, error=plugin.error or error) if plugin.label in labels else plugin for plugin in loaded
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
