"""Where tuned configurations lie: tables in the wheel, one file a device, and the user's entries in `tilegym.cache`.

An entry holds for one device and one compiler, since another makes other code, a user's for one TileGym too; and it has
to have the very fields that its configuration has today. What does not fit is as if it were not there. The disk is read
once for each function and device, when the first answer is needed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping  # noqa: TC003 - `from_json` reads the annotations
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tilegym import __version__, cache
from tilegym.errors import RecordError
from tilegym.files import write_whole
from tilegym.log import logger
from tilegym.records import from_json
from tilegym_cutile import toolchain

if TYPE_CHECKING:
    from tilegym_cutile.runtime import Target

C = TypeVar("C")

FOLDER = Path(__file__).parent / "tables"
"""The tables of the wheel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The configurations of one device: a file of its own."""

    device: str
    arch: str
    versions: Mapping[str, str | None]
    """Of what compiled the kernels."""
    functions: Mapping[str, Mapping[str, Any]]
    """Name of a tuned function → key of a call → the fields of its configuration."""

    def holds_for(self, target: Target) -> bool:
        """Whether it was made on such a device, with the compiler that is here."""
        made, here = (self.device, self.arch, self.versions), (target.name, target.arch, versions())
        return made == here


@functools.cache
def versions() -> Mapping[str, str | None]:
    """Of what compiles kernels here."""
    return toolchain.compiler_versions()


def stored(cls: type[C], name: str, target: Target, key: str) -> C | None:
    """The configuration kept for a call: the user's own, or else that of the wheel; None if there is none that fits."""
    for source in _sources(name, target):
        if key not in source:
            continue
        try:
            return from_json(cls, source[key], f"{name} {key}")
        except RecordError as error:
            logger.info("a tuned configuration is not used: %s", error)
    return None


def put(name: str, target: Target, key: str, config: Any) -> None:
    """Keep a configuration among the user's own. This process sees it after `forget()`."""
    cache.put(_kind(name), _place(target) + key, asdict(config))


def forget() -> None:
    """Read the disk anew when next asked."""
    _sources.cache_clear()
    _shipped.cache_clear()


def facts() -> dict[str, str | None]:
    """What there is, for `tilegym doctor`."""
    shipped = [read(path) for path in sorted(FOLDER.glob("*.json"))]
    folder = cache.directory(make=False)
    own = [] if folder is None else [*folder.glob(f"{_kind('*')}.json")]
    return {
        "tuned in the wheel": ", ".join(f"{table.device} ({_made_by(table.versions)})" for table in shipped) or None,
        "tuned by you": f"{len(own)} configurations in {folder}" if own else None,
    }


@functools.cache
def _sources(name: str, target: Target) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Of one function on a device, key → fields: the user's own, and those of the wheel."""
    kept = cache.entries(_kind(name))
    place = _place(target) if kept else ""
    own = {key.removeprefix(place): fields for key, fields in kept.items() if key.startswith(place)}
    return own, _shipped(target).get(name, {})


@functools.cache
def _shipped(target: Target) -> Mapping[str, Mapping[str, Any]]:
    path = FOLDER / file_name(target.name)
    if not path.exists():
        return {}
    try:
        table = read(path)
    except RecordError as error:
        logger.warning("the table of tuned configurations is not used: %s", error)
        return {}
    return table.functions if table.holds_for(target) else {}


def _kind(name: str) -> str:
    return f"tuning-{name}"


def _place(target: Target) -> str:
    """How the keys of the user's entries for a device begin; another TileGym may have other kernels."""
    return f"{target.name}, {target.arch}, tilegym {__version__}, {_made_by(versions())}: "


def _made_by(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{what} {version}" for what, version in versions.items())


def file_name(device: str) -> str:
    """The name of a device's table: `nvidia-h200.json`."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"


def read(path: Path) -> Table:
    """A table from a file.

    Raises:
        RecordError: it cannot be read, or is no table.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} cannot be read as a table of tuned configurations: {error}") from error
    return from_json(Table, data, str(path))


def read_for(target: Target, path: Path) -> Table:
    """A device's table from a file.

    Raises:
        RecordError: it cannot be read, is no table, or another device's.
    """
    found = read(path)
    if found.device != target.name:
        raise RecordError(f"{path} is the table of {found.device}, not of {target.name}: give another file")
    return found


def write(table: Table, path: Path) -> None:
    """Write a table to a file, whole or not at all: sorted, an entry a line.

    Raises:
        OSError: it cannot be written.
    """
    head = {"device": table.device, "arch": table.arch, "versions": table.versions}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    functions = [_lines_of(name, entries) for name, entries in sorted(table.functions.items())]
    write_whole(path, "\n".join(["{", *lines, ' "functions": {', ",\n".join(functions), " }", "}", ""]))


def update(path: Path, name: str, target: Target, key: str, config: Any | None) -> None:
    """Put a configuration into a table's file, or take out what it has for this key if there is none.

    A table that another compiler made is begun anew.

    Raises:
        RecordError: the file is no table, or another device's.
        OSError: it cannot be written.
    """
    table = Table(device=target.name, arch=target.arch, versions=versions(), functions={})
    if path.exists():
        found = read_for(target, path)
        table = found if found.holds_for(target) else table
    entries = {one: fields for one, fields in table.functions.get(name, {}).items() if one != key}
    if config is not None:
        entries[key] = asdict(config)
    functions = {**table.functions, name: entries}
    write(replace(table, functions={one: some for one, some in functions.items() if some}), path)


def _lines_of(name: str, entries: Mapping[str, Any]) -> str:
    lines = [f"   {json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries, key=_by_number)]
    return f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }"


def _by_number(key: str) -> list[tuple[int, str]]:
    """Sorts "m=2048" before "m=16384"."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", key)]
