"""Compiles the kernels of an op for any architecture, with no GPU: what they use, and whether they spill.

The op's host code, forward and backward, runs on the contract's samples and benchmarks inside `runtime.recording()`,
which keeps each launch and runs none; each distinct kernel is then compiled by NVIDIA's compiler, through cuda-tile's
disk cache.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import cuda.tile as ct
from cuda.tile._cext import default_tile_context
from cuda.tile._compile import compile_tile
from cuda.tile.compilation import ArrayConstraint, ConstantConstraint, TupleConstraint
from cutile_cache._cache import cache_entries

from tilegym.errors import CompilationError
from tilegym.testing import load_implementation, materialize
from tilegym_cutile import toolchain
from tilegym_cutile.cubin import Usage, usage
from tilegym_cutile.runtime import ARCHITECTURES, Launch, recording
from tilegym_cutile.signature import annotated_function, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

T = TypeVar("T")
_RECENT: Final = 32  # entries of the disk cache to look through for the one just used


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A launch to compile, and the sample that made it."""

    op: str
    sample: str
    dtype: torch.dtype
    launch: Launch

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return name_of(self.launch.kernel)

    @property
    def hints(self) -> dict[str, Any]:
        """The compiler hints that are set."""
        options = dataclasses.asdict(self.launch.kernel._compiler_options)  # noqa: SLF001 - no public name
        return {name: value for name, value in options.items() if value is not None and name != "opt_level"}

    @property
    def branch(self) -> tuple[Any, ...]:
        """What tells its code from that of other cases: the kernel, the dtype, whether arrays have odd layouts."""
        return (self.kernel, self.dtype, any(array.ndim > 2 for array in self._constraints(ArrayConstraint)))

    @property
    def weight(self) -> tuple[int, ...]:
        """How much its code has to do: the size of its tiles, how many arrays there are, then all else."""
        constants = [one.value for one in self._constraints(ConstantConstraint)]
        arrays = self._constraints(ArrayConstraint)
        yes = sum(bool(value) for value in constants)
        return self.tile, len(arrays), yes, sum(array.ndim for array in arrays)

    @property
    def tile(self) -> int:
        """The product of the kernel's whole-number constants above 16: how large its tiles are.

        Smaller ones say how a block goes about them, or what divides a size.
        """
        constants = [one.value for one in self._constraints(ConstantConstraint) if type(one.value) is int]
        return math.prod(value for value in constants if value > 16)

    def _constraints(self, kind: type[T]) -> list[T]:
        """Those of a kind, also inside of tuples."""
        found: list[T] = []
        pending = [*self.launch.signature.parameters]
        while pending:
            one = pending.pop()
            if isinstance(one, TupleConstraint):
                pending += one.items
            elif isinstance(one, kind):
                found.append(one)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiled:
    """What came out for one case and architecture."""

    case: Case
    arch: str
    usage: Usage
    seconds: float
    """That the compiler took, also if its result lay in the cache."""
    remarks: tuple[str, ...]
    """What the compiler remarked, if it can."""


def cases(op: str, *, arch: str, dtypes: Iterable[torch.dtype] | None = None, every: bool = False) -> list[Case]:
    """The launches that an op's samples lead to on an architecture, forward and backward.

    Args:
        op: the op's name.
        arch: an architecture that `runtime.recording` knows: it may change the configuration.
        dtypes: fewer dtypes than the contract's.
        every: each distinct kernel, configuration and signature, not the heaviest of each branch.
    """
    implementation = load_implementation(op, "cutile")
    contract = implementation.contract
    found: dict[Any, Case] = {}
    for sample in (*contract.samples(), *(contract.benchmarks or tuple)()):
        for dtype in filter(partial(takes, arch), dtypes or contract.dtypes):
            with recording(arch=arch) as launches:
                arguments = materialize(sample, dtype=dtype, device="meta")
                implementation(arguments)
                if contract.gradient is not None and arguments.get("out") is None:
                    implementation.differentiate(arguments)
            for launch in launches:
                case = Case(op=op, sample=sample.name, dtype=dtype, launch=launch)
                key = (case.kernel, tuple(case.hints.items()), launch.signature.symbol) if every else case.branch
                if key not in found or case.weight > found[key].weight:
                    found[key] = case
    return list(found.values())


def takes(arch: str, dtype: torch.dtype) -> bool:
    """Whether an architecture has a dtype: before Ada there is no float8."""
    return dtype.itemsize > 1 or ARCHITECTURES[arch].capability >= (8, 9)


def compile_case(case: Case, arch: str) -> Compiled:
    """Compile a case for an architecture.

    Raises:
        CompilationError: it cannot be done; the cause is the compiler's own error.
    """
    kernel = case.launch.kernel
    signature = case.launch.signature
    started = time.perf_counter()
    try:
        result = compile_tile(  # export_kernel, the public way, writes files only
            annotated_function(kernel),
            (signature,),
            sm_arch=arch,
            compiler_options=kernel._compiler_options,  # noqa: SLF001 - no public name
        )
    except (ct.TileError, OSError) as error:
        raise CompilationError(_explained(case, arch, error)) from error
    seconds = time.perf_counter() - started
    cached, remarks = _remembered(signature.symbol)
    return Compiled(case=case, arch=arch, usage=usage(bytes(result.cubin)), seconds=cached or seconds, remarks=remarks)


def _explained(case: Case, arch: str, error: Exception) -> str:
    what = f"kernel {case.kernel} of {case.op}, sample {case.sample}, {case.dtype}, cannot be compiled for {arch}"
    missing = toolchain.why_no_compiler()
    if missing is not None:
        return f"{what}: {missing}"
    if isinstance(error, ct.TileUnsupportedFeatureError):
        return f"{what}: the architecture lacks something that it uses: {error}"
    return f"{what}: {error}"


def _remembered(symbol: str | None) -> tuple[float | None, tuple[str, ...]]:
    """How long the compiler took for the kernel compiled last under this name, and its remarks."""
    directory = default_tile_context.config.cache_dir
    if directory is None:
        return None, ()
    for entry in cache_entries(directory, _RECENT):
        if symbol in (entry.metadata.kernel_names or ()):
            lines = (entry.metadata.remarks or "").splitlines()
            return entry.metadata.compilation_time_seconds, tuple(line for line in lines if line.strip())
    return None, ()
