"""Every op by name: `tilegym.ops.softmax(x)`, and those of other packs: `tilegym.ops.<pack>.<op>`.

Beside them stand the interfaces, `tilegym/interfaces/`: functions that return modules or functions built on ops.
A file is imported when its op is first named; `dir(tilegym.ops)` lists all without importing any.
"""

from __future__ import annotations

from typing import Any

from tilegym import namespace


def __getattr__(name: str) -> Any:
    return namespace.find(name)


def __dir__() -> list[str]:
    return namespace.names()
