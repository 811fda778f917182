"""Functions made of generated source, which tracebacks and debuggers show as any other."""

from __future__ import annotations

import linecache
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def generated(name: str, source: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """Run generated source that defines the function `name`, and return that; the source is kept in linecache."""
    filename = f"<tilegym {name} {zlib.crc32(source.encode()):08x}>"  # the same for the same source: nothing piles up
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), namespace)  # noqa: S102 - our own source, made of signatures
    function: Callable[..., Any] = namespace[name]
    return function
