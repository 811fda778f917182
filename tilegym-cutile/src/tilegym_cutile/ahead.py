"""Compiles the kernels that a search, or a benchmark, is about to launch, in processes beside it.

cuda-tile compiles one kernel at a time in a process, and some take tens of seconds; but it looks first into its disk
cache, where it finds what another process has compiled. The processes need no GPU: they run the op's host code on meta
tensors, as if on the device, and compile what it would launch.
"""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct
import torch

from tilegym.errors import CompilationError
from tilegym.testing import load_implementation, materialize
from tilegym_cutile import tuning
from tilegym_cutile.compilation import Case as Compilation
from tilegym_cutile.compilation import compile_case
from tilegym_cutile.runtime import recording, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.results import Direction
    from tilegym.contract import Sample
    from tilegym_cutile.runtime import Target
    from tilegym_cutile.tuning import Question

    Begin = Callable[[Case, Question, Sequence[Any]], Callable[[Any], str | None]]

_COMPILE_SECONDS: Final = 60.0
"""A kernel that takes longer is compiled when it is launched."""


@contextmanager
def compiling_ahead(jobs: int, compile_seconds: float) -> Iterator[Begin]:
    """So many processes, which take up to `compile_seconds` for a kernel; they start with the first work.

    What the context gives is called with a case, a question that its call asks, and configurations: it begins to
    compile, for each, what the call would launch if it were the answer. It returns a function that waits for one of
    them, and says why it does not compile, if so.
    """
    pool = _processes(jobs)

    def begin(case: Case, question: Question, configs: Sequence[Any]) -> Callable[[Any], str | None]:
        about = (case.op.name, case.sample, case.dtype, question.target, question.function.name, question.key)
        begun = {config: pool.submit(_why_not, *about, config, compile_seconds) for config in configs}
        return lambda config: _result(begun[config])

    try:
        yield begin
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def compile_calls(calls: Iterable[tuple[Case, Direction]], device: torch.device, jobs: int) -> None:
    """Compile each kernel that calls will launch on a device, and wait for all; see `Backend.compile_ahead`."""
    target = target_of(torch.empty(0, device=device))
    kernels: dict[Any, Callable[[], None]] = {}
    for case, direction in calls:
        about = (case.op.name, case.sample, case.dtype, target, direction)
        with suppress(Exception):  # a call that is refused tells so itself
            for index, one in enumerate(_compilations(*about)):
                key = (one.kernel, *one.hints.items(), one.launch.signature.symbol)
                kernels.setdefault(key, partial(_compile, *about, index))
    with _processes(min(jobs, max(1, len(kernels)))) as pool:
        for compile_one in kernels.values():
            pool.submit(compile_one)


def _compile(op: str, sample: Sample, dtype: torch.dtype, target: Target, direction: Direction, index: int) -> None:
    with ct.compiler_timeout(_COMPILE_SECONDS):
        compile_case(_compilations(op, sample, dtype, target, direction)[index], target.arch)


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        count,
        mp_context=get_context("spawn"),  # a fork would share the GPU's state
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for the search
    )


def _result(future: Future[str | None]) -> str | None:
    """What came out; None too if the process failed in another way, since a search then finds out for itself."""
    return None if future.exception() is not None else future.result()


def _why_not(
    op: str, sample: Sample, dtype: torch.dtype, target: Target, function: str, key: str, config: Any, seconds: float
) -> str | None:
    """Why a configuration does not compile; None: it does, and what it launches lies in the disk cache."""
    with tuning.observed() as questions:
        _compilations(op, sample, dtype, target)
    question = next(one for one in questions if (one.function.name, one.key) == (function, key))
    with tuning.forced(question, config):
        kernels = _compilations(op, sample, dtype, target)
    try:
        with ct.compiler_timeout(seconds):
            for kernel in kernels:
                compile_case(kernel, target.arch)
    except CompilationError as error:
        return str(error)
    return None


def _compilations(
    op: str, sample: Sample, dtype: torch.dtype, target: Target, direction: Direction | None = None
) -> list[Compilation]:
    """What a call would launch, or, in the backward direction, with its gradients; None: both, if there are any."""
    implementation = load_implementation(op, "cutile")
    with recording(target=target) as launches:
        arguments = materialize(sample, dtype=dtype, device="meta")
        if direction != "backward":
            implementation(arguments)
        if direction != "forward" and implementation.contract.gradient is not None and arguments.get("out") is None:
            implementation.differentiate(arguments)
    return [Compilation(op=op, sample=sample.name, dtype=dtype, launch=launch) for launch in launches]
