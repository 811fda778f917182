"""The one seam between an op's host code and what runs its kernels; nothing else here touches `torch.cuda`.

Host code asks `target_of(tensor)` for the facts its heuristics need and calls `launch(kernel, grid, args)`. Behind both
stands the executor of the tensors' device:

* CUDA: `ct.launch` on that device and its current stream, whatever the current device is;
* any device type given to `register_executor`, as `tilegym-cutile-cpu` does for "cpu";
* inside `recording()`: none. Each launch is kept and nothing runs, so CPU and meta tensors will do.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import cuda.tile as ct
import torch

from tilegym.errors import BackendUnavailableError
from tilegym_cutile.capture import loading_allowed
from tilegym_cutile.signature import signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cuda.tile.compilation import KernelSignature
    from torch import Tensor

    Grid = tuple[int] | tuple[int, int] | tuple[int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Target:
    """What a heuristic may know of the device that will run a kernel. One object per device: a cheap key of caches."""

    name: str
    """As the driver names the device: "NVIDIA H200"; of a make-believe one, nothing that a driver says."""
    arch: str
    """As the compiler names it: "sm_90"."""
    capability: tuple[int, int]
    num_sms: int
    shared_memory: int
    """Bytes that one block may opt in to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """Compiler hints of `ct.kernel`; None leaves the kernel's own, which may be the compiler's choice."""

    num_ctas: int | None = None
    occupancy: int | None = None
    num_worker_warps: int | None = None

    def at_once(self, num_sms: int) -> int:
        """How many blocks run at once on so many SMs; without `occupancy`, it is one for each.

        A block of several CTAs has all of its SMs in one of the chip's clusters, of 16 of them or a few more.
        """
        ctas = self.num_ctas or 1
        usable = num_sms if ctas <= 2 else num_sms // 16 * 16
        return max(1, usable * (self.occupancy or 1) // ctas)


class Executor(Protocol):
    """Runs kernels on one device."""

    @property
    def target(self) -> Target:
        """The device's facts."""

    def launch(self, kernel: ct.kernel, grid: Grid, args: tuple[Any, ...]) -> None:
        """Run `kernel` once per block of `grid`, in order with the device's other work."""


class _CudaExecutor:
    """The GPU itself."""

    __slots__ = ("_index", "target")

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self._index = torch.cuda.current_device() if device.index is None else device.index
        self.target = Target(
            name=properties.name,
            arch=f"sm_{properties.major}{properties.minor}",
            capability=(properties.major, properties.minor),
            num_sms=properties.multi_processor_count,
            shared_memory=properties.shared_memory_per_block_optin,  # type: ignore[attr-defined] # torch's stubs lack it
        )

    def launch(self, kernel: ct.kernel, grid: Grid, args: tuple[Any, ...]) -> None:
        index = self._index
        # What the public torch.cuda.current_device and current_stream do besides takes over a microsecond a call.
        if torch._C._cuda_getDevice() != index:  # noqa: SLF001
            with torch.cuda.device(index):
                self.launch(kernel, grid, args)
            return
        stream = torch._C._cuda_getCurrentRawStream(index)  # noqa: SLF001
        if torch.cuda.is_current_stream_capturing():
            with loading_allowed():
                ct.launch(stream, grid, kernel, args)
        else:
            ct.launch(stream, grid, kernel, args)


_factories: dict[str, Callable[[torch.device], Executor]] = {"cuda": _CudaExecutor}
_executors: dict[torch.device, Executor] = {}


def register_executor(device_type: str, factory: Callable[[torch.device], Executor]) -> None:
    """From now on, `factory(device)` makes what runs kernels on each device of this type."""
    _factories[device_type] = factory
    for device in [device for device in _executors if device.type == device_type]:
        del _executors[device]


def executor_of(tensor: Tensor) -> Executor:
    """What runs kernels on `tensor`: its device's executor; inside `recording()`, the recorder."""
    return _recorder.get() or _executors.get(tensor.device) or _new_executor(tensor.device)


def _new_executor(device: torch.device) -> Executor:
    factory = _factories.get(device.type)
    if factory is None:
        raise BackendUnavailableError(_no_executor(device))
    executor = _executors[device] = factory(device)
    return executor


def _no_executor(device: torch.device) -> str:
    if device.type == "cpu":
        return (
            "cuTile kernels do not run on CPU tensors as they are: expected tensors on a CUDA device, got one on cpu. "
            "Move the inputs to a GPU, or install tilegym-cutile-cpu and use backend='cutile-cpu'."
        )
    return (
        f"cuTile kernels do not run on device type {device.type!r}: expected one of {sorted(_factories)}. "
        "Move the inputs to a CUDA device."
    )


def is_captured(tensor: Tensor) -> bool:
    """Whether launches on `tensor` now go into a CUDA graph; cuTile does not take lists of arrays then."""
    if not tensor.is_cuda:
        return False
    with torch.cuda.device(tensor.device):
        return torch.cuda.is_current_stream_capturing()


def target_of(tensor: Tensor) -> Target:
    """The facts of the device that will run kernels on `tensor`."""
    return executor_of(tensor).target


def launch(kernel: ct.kernel, grid: Grid, args: tuple[Any, ...], *, hints: Hints | None = None) -> None:
    """Run `kernel` over `grid` on the device of the first tensor in `args`, on that device's current stream."""
    if hints is not None:
        kernel = with_hints(kernel, hints)
    tensor = _first_tensor(args)
    if tensor is None:
        msg = f"launch() takes its device from the first tensor among the kernel's arguments: there is none in {args!r}"
        raise TypeError(msg)
    executor_of(tensor).launch(kernel, grid, args)


def optional(tensor: Tensor | None) -> tuple[Tensor, ...]:
    """A kernel's argument that may be absent: a tuple, which is empty without it."""
    return () if tensor is None else (tensor,)


_hinted: dict[tuple[ct.kernel, Hints], ct.kernel] = {}


def with_hints(kernel: ct.kernel, hints: Hints) -> ct.kernel:
    """`kernel` with `hints`: one object per pair, since each has a compile cache of its own."""
    hinted = _hinted.get((kernel, hints))
    if hinted is None:
        given = {f.name: value for f in fields(hints) if (value := getattr(hints, f.name)) is not None}
        if not given:
            return kernel
        hinted = _hinted.setdefault((kernel, hints), kernel.replace_hints(**given))  # type: ignore[no-untyped-call] # cuda-tile is untyped
    return hinted


def _first_tensor(args: Sequence[Any]) -> Tensor | None:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            return arg
        if isinstance(arg, (list, tuple)) and (found := _first_tensor(arg)) is not None:
            return found
    return None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch that `recording()` kept."""

    kernel: ct.kernel
    """With its hints."""
    grid: Grid
    args: tuple[Any, ...]

    @functools.cached_property
    def signature(self) -> KernelSignature:
        """What the kernel would be compiled for."""
        return signature(self.kernel, self.args)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recorder:
    target: Target
    launches: list[Launch]

    def launch(self, kernel: ct.kernel, grid: Grid, args: tuple[Any, ...]) -> None:
        self.launches.append(Launch(kernel=kernel, grid=grid, args=args))


_recorder: contextvars.ContextVar[_Recorder | None] = contextvars.ContextVar("tilegym_cutile_recorder", default=None)

_KIB = 1024
ARCHITECTURES = {
    arch: Target(name=arch, arch=arch, capability=capability, num_sms=num_sms, shared_memory=kib * _KIB)
    for arch, capability, num_sms, kib in (
        ("sm_80", (8, 0), 108, 163),  # A100
        ("sm_90", (9, 0), 132, 227),  # H100, H200
        ("sm_100", (10, 0), 148, 227),  # B200
        ("sm_120", (12, 0), 188, 99),  # RTX PRO 6000
    )
}
"""The make-believe devices of `recording()`, by architecture."""


@contextlib.contextmanager
def recording(*, arch: str = "sm_90", target: Target | None = None) -> Iterator[list[Launch]]:
    """Keep every launch made in this context, as if on a device of `arch` or on `target`, and run none of them.

    Outputs stay uninitialised. Works with tensors of any device, CPU and meta included.
    """
    if arch not in ARCHITECTURES:
        msg = f"recording() knows no architecture {arch!r}: expected one of {sorted(ARCHITECTURES)}"
        raise ValueError(msg)
    launches: list[Launch] = []
    token = _recorder.set(_Recorder(target=target or ARCHITECTURES[arch], launches=launches))
    try:
        yield launches
    finally:
        _recorder.reset(token)
