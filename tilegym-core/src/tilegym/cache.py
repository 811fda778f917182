"""Small results that outlive a process, such as tuned configurations: JSON, a file a key, in the user's own directory.

Losing one costs time and nothing else, so nothing here ever raises for the disk's sake: what cannot be read is a miss,
what cannot be written is not kept, and what others could have written is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import platformdirs

from tilegym.config import settings
from tilegym.errors import EnvironmentWarning
from tilegym.log import logger
from tilegym.notices import once


def directory(*, make: bool = True) -> Path | None:
    """Where results are kept: `TILEGYM_CACHE_DIR`, or else the user's cache directory.

    None, with one warning, if it cannot be made, or if others than the user may write there. With `make=False` it
    is None, without a word, where it is not there or cannot be read: who reads alone need not know.
    """
    path = settings().cache_dir or Path(platformdirs.user_cache_dir("tilegym", appauthor=False))
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not os.access(path, os.R_OK):
            return None
        reason = _why_not_trusted(path)
    except OSError as error:
        reason = f"it cannot be made: {error}"
    if reason is None:
        return path
    if once(("cache directory", path)):
        warnings.warn(f"nothing is kept in cache directory {path}: {reason}", EnvironmentWarning, stacklevel=3)
    return None


def _why_not_trusted(path: Path) -> str | None:
    if os.name != "posix":
        return None
    status = path.stat()
    if status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}, not to the one who runs this process"
    if status.st_mode & 0o022:
        return f"others may write there; chmod go-w {path}"
    return None


def _file(folder: Path, kind: str, key: str) -> Path:
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return folder / f"{kind}-{digest[:32]}.json"


def get(kind: str, key: str) -> Any:
    """What was put under a key; None if nothing was, or if it cannot be read."""
    folder = directory(make=False)
    entry = None if folder is None else _read(_file(folder, kind, key))
    return entry["value"] if entry is not None and entry["key"] == key else None


def entries(kind: str) -> dict[str, Any]:
    """All that was put of a kind and can be read, key → value, in one pass over the directory."""
    folder = directory(make=False)
    if folder is None:
        return {}
    try:
        files = [path for path in folder.iterdir() if re.fullmatch(rf"{kind}-[0-9a-f]{{32}}\.json", path.name)]
    except OSError:
        return {}
    found = ((path, entry) for path in files if (entry := _read(path)) is not None)
    return {entry["key"]: entry["value"] for path, entry in found if _file(folder, kind, entry["key"]) == path}


def _read(path: Path) -> dict[str, Any] | None:
    """A file's key and value; None if it cannot be read as such."""
    try:
        entry = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    good = isinstance(entry, dict) and entry.keys() == {"key", "value"} and isinstance(entry["key"], str)
    return entry if good else None


def put(kind: str, key: str, value: Any) -> None:
    """Keep a JSON value under a key. Readers see the old one or the new one, never a part.

    Args:
        kind: what sort of result it is, as the beginning of a file name: lower-case letters, digits, `-` and `_`.
        key: all that the result depends on.
        value: what `json` can write.
    """
    text = json.dumps({"key": key, "value": value}, indent=1)
    folder = directory()
    if folder is None:
        return
    partial = None
    try:
        handle, partial = tempfile.mkstemp(dir=folder, prefix=f".{kind}-")  # readable by the user alone
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(partial).replace(_file(folder, kind, key))
    except OSError as error:
        logger.warning("cache directory %s: a result could not be kept: %s", folder, error)
        if partial is not None:
            with contextlib.suppress(OSError):
                Path(partial).unlink()
