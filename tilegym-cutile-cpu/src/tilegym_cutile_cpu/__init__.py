"""Run NVIDIA cuTile Python kernels on the CPU.

`launch(grid, kernel, args)` runs one kernel; inside `with emulate():`, `ct.launch` on CPU tensors does. Nothing of
torch or cuTile is imported before the first of these names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilegym_cutile_cpu.errors import (
        AccessError,
        EmulationError,
        EndlessLoopError,
        KernelAssertionError,
        KernelError,
        LaunchError,
        OutOfBoundsError,
        Site,
        UnsupportedOperationError,
    )
    from tilegym_cutile_cpu.executor import LaunchRecord, emulate, launch, record_launches
    from tilegym_cutile_cpu.poisoning import PoisonedAllocations, poison
    from tilegym_cutile_cpu.sanitizer import (
        AliasError,
        DuplicateStoreError,
        OutsideArrayError,
        RaceError,
        SanitizerError,
    )

__all__ = [
    "AccessError",
    "AliasError",
    "DuplicateStoreError",
    "EmulationError",
    "EndlessLoopError",
    "KernelAssertionError",
    "KernelError",
    "LaunchError",
    "LaunchRecord",
    "OutOfBoundsError",
    "OutsideArrayError",
    "PoisonedAllocations",
    "RaceError",
    "SanitizerError",
    "Site",
    "UnsupportedOperationError",
    "emulate",
    "launch",
    "poison",
    "record_launches",
]

_HOMES = ("executor", "errors", "sanitizer", "poisoning")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in _HOMES:
        module = importlib.import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"{__name__}.{name} is declared but found in none of {_HOMES}")


def __dir__() -> list[str]:
    return sorted(__all__)
