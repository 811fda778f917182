"""Run NVIDIA cuTile Python kernels on the CPU."""

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
from tilegym_cutile_cpu.poison import PoisonedAllocations, poison
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
