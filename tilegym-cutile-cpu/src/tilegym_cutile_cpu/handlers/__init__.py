"""What each operation of the final IR does. Importing this package fills the handler tables of `lowering`."""

from tilegym_cutile_cpu.handlers import (
    arithmetic,
    atomics,
    casts,
    control_flow,
    core,
    debug,
    mma,
    reductions,
    shapes,
    views,
)

__all__ = ["arithmetic", "atomics", "casts", "control_flow", "core", "debug", "mma", "reductions", "shapes", "views"]
