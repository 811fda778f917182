"""Whether the import package `tilegym` is ours, and what to do if not. Imports nothing of `tilegym` until asked."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib import metadata
from typing import Final

_THEIRS: Final = "tilegym"
_NEEDED: Final = ("tilegym.config", "tilegym.plugins", "tilegym.ops", "tilegym.testing")

_REINSTALL: Final = "in a checkout of TileGym: python3 -m pip install --force-reinstall --no-deps ./tilegym-core"
FOREIGN_REPAIR: Final = (
    "NVIDIA's distribution 'tilegym' is installed beside our 'tilegym-core'. Both bring the import package 'tilegym', "
    "and the one installed last has overwritten files of the other. Use two environments, or keep ours: "
    f"python3 -m pip uninstall tilegym, and then, {_REINSTALL}"
)


def foreign_distribution() -> str | None:
    """The version of NVIDIA's own `tilegym` distribution, if it is installed here too."""
    try:
        return metadata.version(_THEIRS)
    except metadata.PackageNotFoundError:
        return None


def why_not_ours() -> str | None:
    """What is wrong with the package `tilegym` and how to repair it; None: it is ours and whole."""
    fault = _fault()
    if fault is None:
        return None
    if foreign_distribution() is not None:
        return f"{fault}\n{FOREIGN_REPAIR}"
    return (
        f"{fault}\nIf another package of this name comes first on sys.path (the current folder, PYTHONPATH), take it "
        f"away. If files of tilegym-core were overwritten or removed, install it again, {_REINSTALL}"
    )


def _fault() -> str | None:
    try:
        package = importlib.import_module(_THEIRS)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a foreign package does on import
        return f"The package 'tilegym' does not import: {type(error).__name__}: {error}"
    # Our __init__.py imports __about__; an __init__.py written over it by somebody else does not.
    if f"{_THEIRS}.__about__" not in sys.modules:
        places = getattr(package, "__file__", None) or ", ".join(package.__path__)
        return f"The package 'tilegym' that Python finds ({places}) is not that of tilegym-core."
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"The package 'tilegym' is not whole, it lacks {', '.join(missing)}." if missing else None
