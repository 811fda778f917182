"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file, with the folders it needs; what stood there before stays until the new one is complete.

    A device or a pipe, such as /dev/stdout, is written to; a file in its place would be no device any more.

    Raises:
        OSError: it cannot be written, and nothing has changed.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    target = Path(os.path.realpath(path))  # through a link, not over it
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
