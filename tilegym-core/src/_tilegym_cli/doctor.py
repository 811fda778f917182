"""`tilegym doctor`: what is installed and in force, what cannot run here and why, and what is broken."""

from __future__ import annotations

import platform
import sys
import traceback
import warnings
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from rich.text import Text

from _tilegym_cli import listings
from _tilegym_cli.distributions import distributions_report
from _tilegym_cli.foreign import FOREIGN_REPAIR, foreign_distribution
from _tilegym_cli.tables import console, lines, show, table
from tilegym import config, registry
from tilegym.__about__ import __version__
from tilegym.availability import find_backend, why_unusable
from tilegym.errors import BackendError
from tilegym.plugins import catalogue, misspelt_names
from tilegym.selection import Call, examine
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from tilegym.config import Settings
    from tilegym.hookspecs import Backend
    from tilegym.plugins import Plugin


def doctor_report() -> dict[str, Any]:
    """Everything as plain data; `problems` is empty where nothing is broken."""
    chosen, problems = config.examine()
    tolerant = replace(chosen, strict=False)
    with config.override(tolerant):
        misspelt = misspelt_names()
    problems += misspelt
    if misspelt:  # no plugin is imported that might have been meant to be left out
        tolerant = replace(tolerant, plugins=frozenset(), disable_plugins=frozenset())
    with warnings.catch_warnings(), config.override(tolerant):
        warnings.simplefilter("ignore")  # what they would say is in the report
        plugins = [_plugin_row(plugin) for plugin in catalogue().plugins]
        problems += [f"{row['label']} failed to load: {row['reason']}" for row in plugins if row["state"] == "failed"]
        problems += _preference_problems(chosen) + _broken_files()
        backends = listings.backends_report()
        facts = {backend.name: _facts(backend) for backend in listings.backends_in_order() if backend.facts is not None}
    if foreign_distribution() is not None:
        problems.append(FOREIGN_REPAIR)
    return {
        "ok": not problems,
        "problems": problems,
        "version": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "torch": {"version": torch.__version__, "cuda": torch.version.cuda, "devices": _devices()},
        "distributions": distributions_report(),
        "plugins": plugins,
        **backends,
        "facts": facts,
        "settings": _settings_rows(chosen),
    }


def _plugin_row(plugin: Plugin) -> dict[str, Any]:
    state = "failed" if plugin.error is not None else "skipped" if plugin.skipped else "loaded"
    return {
        "name": plugin.name,
        "module": plugin.value,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "label": plugin.label,
        "state": state,
        "reason": listings.why_left_out(plugin),
        "traceback": "".join(traceback.format_exception(plugin.error)) if plugin.error is not None else None,
    }


def _preference_problems(chosen: Settings) -> list[str]:
    """What is wrong with TILEGYM_BACKEND, if it names a backend."""
    if chosen.backend in (None, "auto"):
        return []
    try:
        reason = why_unusable(find_backend(str(chosen.backend)))
    except BackendError as error:
        return [f"environment variable TILEGYM_BACKEND: {error}"]
    return [f"TILEGYM_BACKEND={chosen.backend} is ignored, since it cannot run here: {reason}"] if reason else []


def _broken_files() -> list[str]:
    """Contracts that do not load, and implementations that do not although their backend can run here."""
    broken = []
    for name in registry.op_names():
        try:
            op = registry.get_op(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a broken spec is what is looked for
            broken.append(f"the contract of {name} does not load: {describe(error)}")
            continue
        for backend in registry.backends():
            candidate = examine(op, backend, Call())
            if candidate.error is not None:
                broken.append(f"{name} on backend {backend!r}: {candidate.reason}")
    return broken


def _facts(backend: Backend) -> Mapping[str, str | None]:
    try:
        return dict(backend.facts()) if backend.facts is not None else {}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a backend that cannot tell is told of
        return {"error": describe(error)}


def _devices() -> list[str]:
    found = ["cpu"]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(f"cuda:{index} {properties.name}, compute capability {properties.major}.{properties.minor}")
    return found


def _settings_rows(chosen: Settings) -> list[dict[str, Any]]:
    values = chosen.as_dict()
    defaults = config.Settings().as_dict()
    meanings = {field.metadata["variable"]: field.metadata["help"] for field in fields(chosen)}
    return [
        {"variable": variable, "value": value, "default": value == defaults[variable], "help": meanings[variable]}
        for variable, value in values.items()
    ]


def show_doctor(report: Mapping[str, Any], *, verbose: bool) -> None:
    """Tables of what there is, then what is broken."""
    target = console()
    python, torch_ = report["python"], report["torch"]
    surroundings = {
        "TileGym": report["version"],
        "Python": f"{python['version']} ({python['executable']})",
        "platform": report["platform"],
        "torch": f"{torch_['version']}, {'CUDA ' + torch_['cuda'] if torch_['cuda'] else 'built without CUDA'}",
        "devices": "; ".join(torch_["devices"]),
    }
    lines(target, "Here", surroundings)
    _show_installed(target, report)
    listings.show_backends(report)
    for backend, facts in report["facts"].items():
        lines(target, f"What {backend} finds", {name: value or "absent" for name, value in facts.items()})
    settings = [(row["variable"], "not set" if row["value"] is None else row["value"]) for row in report["settings"]]
    table(target, "Settings in force", ("variable", "value"), settings)
    if verbose:
        lines(target, "Tracebacks", {row["label"]: row["traceback"] for row in report["plugins"] if row["traceback"]})
    if not report["problems"]:
        target.print("Nothing is broken.")
        return
    target.print(Text("Broken", style="bold red"))
    for problem in report["problems"]:
        show(target, f"  {problem}")
    if not verbose and any(row["traceback"] for row in report["plugins"]):
        target.print("tilegym doctor --verbose shows tracebacks.")


def _show_installed(target: Console, report: Mapping[str, Any]) -> None:
    headings = ("distribution", "version", "editable", "in force")
    rows = [(row["name"], row["version"], row["editable"], row["in_force"]) for row in report["distributions"]]
    table(target, "Distributions", headings, rows)
    shadowed = [row for row in report["distributions"] if not row["in_force"]]
    folders = {row["metadata"]: f"{row['name']} {row['version']}" for row in shadowed}
    lines(target, "Further metadata of the same distributions, not in force; delete it", folders)
    headings = ("plugin", "module", "distribution", "state")
    rows = [(row["name"], row["module"], row["distribution"], row["state"]) for row in report["plugins"]]
    table(target, "Plugins", headings, rows)
    lines(target, "Why not loaded", {row["name"]: row["reason"] for row in report["plugins"] if row["reason"]})
