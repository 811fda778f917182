"""Small results that outlive a process, such as tuned configurations: JSON, a file a key, in the user's own directory.

Losing one costs time and nothing else, so nothing here ever raises for the disk's sake: what cannot be read is a miss,
what cannot be written is not kept, and what others could have written is not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import platformdirs

from tilegym.config import settings
from tilegym.errors import EnvironmentWarning
from tilegym.log import logger
from tilegym.notices import once


def directory() -> Path | None:
    """Where results are kept, made if need be: `TILEGYM_CACHE_DIR`, or else the user's cache directory.

    None, with one warning, if it cannot be made, or if others than the user may write there.
    """
    path = settings().cache_dir or Path(platformdirs.user_cache_dir("tilegym", appauthor=False))
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
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
    return folder / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def get(kind: str, key: str) -> Any:
    """What was put under a key; None if nothing was, or if it cannot be read."""
    folder = directory()
    if folder is None:
        return None
    try:
        entry = json.loads(_file(folder, kind, key).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return entry.get("value") if isinstance(entry, dict) and entry.get("key") == key else None


def put(kind: str, key: str, value: Any) -> None:
    """Keep a JSON value under a key. Readers see the old one or the new one, never a part.

    Args:
        kind: what sort of result it is, as the beginning of a file name: lower-case letters.
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
