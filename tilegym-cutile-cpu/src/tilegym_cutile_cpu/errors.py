"""What can go wrong when a kernel runs on the CPU. Every error names the kernel, its source line and the block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuda.tile._exception import Loc

BlockId = tuple[int, int, int]


@dataclass(frozen=True)
class Site:
    """Where in a launch something happened.

    kernel: name of the kernel's Python function.
    file, line: the source line of the operation, inside a helper function if it was called there.
    block: (x, y, z) of the block, or None before the first block runs.
    """

    kernel: str
    file: str | None
    line: int
    block: BlockId | None = None

    @classmethod
    def of(cls, kernel: str, loc: Loc, block: BlockId | None = None) -> Site:
        return cls(kernel, loc.filename, loc.line, block)

    def at(self, block: BlockId) -> Site:
        return Site(self.kernel, self.file, self.line, block)

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: kernel '{self.kernel}'"
        return where if self.block is None else f"{where}, block {self.block}"


class EmulationError(RuntimeError):
    """Base of all errors of this package."""


class LaunchError(EmulationError, ValueError):
    """The grid or an argument of a launch cannot be used."""


class UnsupportedOperationError(EmulationError, NotImplementedError):
    """The kernel uses an operation that cannot run on the CPU."""


class KernelError(EmulationError):
    """An operation of a kernel failed. `site` says where; `message` is the text without it."""

    def __init__(self, site: Site, message: str) -> None:
        super().__init__(f"{site}: {message}")
        self.site = site
        self.message = message


class KernelAssertionError(KernelError, AssertionError):
    """A `ct.assert_` of the kernel does not hold."""


class AccessError(KernelError):
    """A memory access of a kernel is wrong.

    argument: the kernel's array argument, with its index if it came in a tuple or list.
    index: the first element concerned, as an index into that argument, or into the slice of it that the kernel uses;
        it may lie outside.
    """

    def __init__(self, site: Site, message: str, *, argument: str, index: tuple[int, ...]) -> None:
        super().__init__(site, f"'{argument}' at {index}: {message}")
        self.argument = argument
        self.index = index


class OutOfBoundsError(AccessError, IndexError):
    """An access that the kernel promised to keep in bounds leaves its array or its allocation."""


class EndlessLoopError(KernelError):
    """A `while` loop waits for another block. Blocks run one after another here, so it would wait for ever."""
