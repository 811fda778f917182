"""Launches: `launch`, `emulate`, and the record of what ran."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from tilegym_cutile.signature import annotated_function, constraints, name_of
from tilegym_cutile_cpu.config import sanitize_by_default
from tilegym_cutile_cpu.errors import LaunchError
from tilegym_cutile_cpu.interpreter import bind, program, run
from tilegym_cutile_cpu.memory import Memory
from tilegym_cutile_cpu.poisoning import PoisonedAllocations
from tilegym_cutile_cpu.progress import follow
from tilegym_cutile_cpu.sanitizer import SanitizedMemory
from tilegym_cutile_cpu.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRecord:
    """One kernel that ran.

    kernel_name: the name of its Python function.
    grid: blocks along x, y and z.
    seconds: how long it took, compilation included.
    """

    kernel_name: str
    grid: tuple[int, int, int]
    seconds: float


_emulating: ContextVar[Mode | None] = ContextVar("tilegym_cutile_cpu_emulating", default=None)
_recording: ContextVar[tuple[list[LaunchRecord], ...]] = ContextVar("tilegym_cutile_cpu_recording", default=())


@dataclass(frozen=True, slots=True)
class Mode:
    """How kernels run: see `launch`."""

    sanitize: bool
    debug: bool


def launch(
    grid: Sequence[int], kernel: ct.kernel, args: Sequence[Any], *, sanitize: bool | None = None, debug: bool = False
) -> None:
    """Run a `@ct.kernel` on CPU tensors, block after block, and return when it is done.

    grid: one to three numbers of blocks.
    args: the kernel's arguments, as `ct.launch` takes them; tensors of any strides.
    sanitize: watch every memory access, and raise a `SanitizerError` at the first one that is wrong on a GPU even
        though it may go unnoticed there. None: as TILEGYM_CUTILE_CPU_SANITIZE says, which is off unless set.
    debug: run the kernel's Python function itself, many times slower, so that `breakpoint()` and `print` work in it.
    """
    if not isinstance(kernel, ct.kernel):
        raise LaunchError(f"expected a function decorated with @ct.kernel, got {type(kernel).__name__}")
    name = name_of(kernel)
    dims = _grid(grid, name)
    args = tuple(args)
    for tensor in _tensors(args):
        _check_tensor(tensor, name)
    started = time.perf_counter()
    with one_thread(), torch.no_grad(), torch.autocast("cpu", enabled=False), _own_torch_calls_unseen():
        _run(dims, kernel, args, Mode(sanitize_by_default() if sanitize is None else sanitize, debug))
    record = LaunchRecord(kernel_name=name, grid=dims, seconds=time.perf_counter() - started)
    for records in _recording.get():
        records.append(record)


@contextmanager
def _own_torch_calls_unseen() -> Iterator[None]:
    """No mode or subclass of the caller's sees the interpreter at work: it would take it for the caller's own code."""
    with torch._C.DisableTorchFunction(), _disable_current_modes():  # noqa: SLF001 - as torch.overrides documents
        yield


def _run(grid: tuple[int, int, int], kernel: ct.kernel, args: tuple[Any, ...], mode: Mode) -> None:
    function = annotated_function(kernel)
    try:
        known = constraints(kernel, args)
    except TypeError as error:
        raise LaunchError(f"kernel '{function.pyfunc.__name__}': {error}") from error
    memory = SanitizedMemory() if mode.sanitize else Memory()
    arguments = bind(list(function.pysig.parameters), args, known, memory)
    if mode.debug:
        from tilegym_cutile_cpu import debugger

        debugger.run(kernel, known, grid, arguments, memory)
    else:
        follow(run(program(kernel, known), grid, arguments, memory), math.prod(grid), function.pyfunc.__name__)


_MOST_BLOCKS = 2**31 - 1, 2**16 - 1, 2**16 - 1
"""Of each dimension of a CUDA grid."""


def _grid(grid: Sequence[int], name: str) -> tuple[int, int, int]:
    try:
        dims = tuple(int(n) for n in grid)
    except TypeError:
        dims = ()
    if not 1 <= len(dims) <= 3 or min(dims) < 0:
        raise LaunchError(f"kernel '{name}': the grid must be one to three numbers of blocks, got {grid!r}")
    x, y, z = (*dims, 1, 1)[:3]
    if any(count > most for count, most in zip((x, y, z), _MOST_BLOCKS, strict=True)):
        raise LaunchError(f"kernel '{name}': a GPU's grid has at most {_MOST_BLOCKS} blocks, got {grid!r}")
    return x, y, z


def _tensors(args: Sequence[Any]) -> Iterator[torch.Tensor]:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, (tuple, list)):
            yield from _tensors(arg)


def _check_tensor(tensor: torch.Tensor, name: str) -> None:
    if tensor.device.type != "cpu":
        raise LaunchError(f"kernel '{name}': expected CPU tensors, got one on {tensor.device}")
    if isinstance(tensor, FakeTensor):
        raise LaunchError(f"kernel '{name}': got a fake tensor, which holds no values")
    if tensor.layout is not torch.strided:
        raise LaunchError(f"kernel '{name}': expected strided tensors, got layout {tensor.layout}")
    if tensor.is_conj() or tensor.is_neg():
        raise LaunchError(f"kernel '{name}': got a lazily negated or conjugated tensor; call .resolve_neg() first")


@contextmanager
def record_launches() -> Iterator[list[LaunchRecord]]:
    """Collect a record of every launch that ends inside the `with` block, in this context (thread or task)."""
    records: list[LaunchRecord] = []
    token = _recording.set((*_recording.get(), records))
    try:
        yield records
    finally:
        _recording.reset(token)


@contextmanager
def emulate(sanitize: bool | None = None, *, debug: bool = False) -> Iterator[None]:
    """Inside the `with` block, `ct.launch` on CPU tensors runs here. Launches on CUDA tensors go on to the GPU.

    Holds for this context (thread or task) alone. A name bound earlier by `from cuda.tile import launch` is not seen:
    call it as `ct.launch`. With `sanitize`, launches are watched as `launch` says, and what `torch.empty` returns is
    poisoned, so that an output element that no kernel wrote is seen. `debug` is as for `launch`.
    """
    sanitized = sanitize_by_default() if sanitize is None else sanitize
    token = _emulating.set(Mode(sanitized, debug))
    _patch.acquire()
    try:
        with PoisonedAllocations() if sanitized else nullcontext():
            yield
    finally:
        _patch.release()
        _emulating.reset(token)


class _LaunchPatch:
    """Replaces `ct.launch` while at least one `emulate` is active in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._original: Callable[..., None] = ct.launch

    def acquire(self) -> None:
        with self._lock:
            if self._users == 0:
                self._original, ct.launch = ct.launch, self._launch
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                ct.launch = self._original

    def _launch(
        self, stream: Any, grid: Sequence[int], kernel: ct.kernel, args: Sequence[Any], /, **options: Any
    ) -> None:
        mode = _emulating.get()
        if mode is None or any(tensor.is_cuda for tensor in _tensors(args)):
            self._original(stream, grid, kernel, args, **options)
        else:
            launch(grid, kernel, args, sanitize=mode.sanitize, debug=mode.debug)


_patch = _LaunchPatch()
