"""Which installed distributions belong to TileGym, and from which metadata folder Python takes each."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilegym.config import canonical_name
from tilegym.hookspecs import PROJECT

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_CORE: Final = "tilegym-core"


def distributions_report() -> list[dict[str, Any]]:
    """Every metadata folder of core, of each plugin, and of NVIDIA's `tilegym`; the first of a name is in force."""
    found: dict[str, dict[str, Distribution]] = {}
    for distribution in metadata.distributions():
        name = canonical_name(distribution.metadata["Name"] or "")
        # A folder that two entries of sys.path show is one.
        found.setdefault(name, {}).setdefault(_folder(distribution), distribution)
    return [
        {
            "name": name,
            "version": distribution.version,
            "editable": _is_editable(distribution),
            "in_force": at == 0,
            "metadata": folder,
        }
        for name, folders in sorted(found.items())
        if name in (_CORE, PROJECT) or any(_is_plugin(one) for one in folders.values())
        for at, (folder, distribution) in enumerate(folders.items())
    ]


def _is_plugin(distribution: Distribution) -> bool:
    return any(point.group == PROJECT for point in distribution.entry_points)


def _folder(distribution: Distribution) -> str:
    path = getattr(distribution, "_path", None)  # importlib.metadata has no public name for it
    return str(path.resolve()) if isinstance(path, Path) else str(distribution.locate_file(""))


def _is_editable(distribution: Distribution) -> bool:
    """Whether it was installed with `pip install -e`, as PEP 610 records it."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable", False))
