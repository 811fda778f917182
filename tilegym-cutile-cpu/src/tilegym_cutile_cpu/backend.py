"""The second executor behind `tilegym_cutile.runtime`: it runs kernels in the interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym_cutile.runtime import Target, register_executor
from tilegym_cutile_cpu.executor import launch

if TYPE_CHECKING:
    import cuda.tile as ct
    import torch


class CpuExecutor:
    """Runs kernels on CPU tensors, as if on a small device, so that persistent loops take several turns."""

    target = Target(name="cutile-cpu", arch="sm_90", capability=(9, 0), num_sms=4, shared_memory=227 * 1024)

    def __init__(self, device: torch.device) -> None:
        """There is one CPU; nothing is kept of it."""

    def launch(self, kernel: ct.kernel, grid: tuple[int, ...], args: tuple[Any, ...]) -> None:
        """Run every block, one after the other."""
        launch(grid, kernel, args)


def install() -> None:
    """Make `tilegym_cutile.runtime` launch kernels on CPU tensors here."""
    register_executor("cpu", CpuExecutor)
