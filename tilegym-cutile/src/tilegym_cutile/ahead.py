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
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Direction
    from tilegym.contract import Sample
    from tilegym_cutile.runtime import Target
    from tilegym_cutile.search import Limits
    from tilegym_cutile.tuning import Question

_COMPILE_SECONDS: Final = 60.0
"""A kernel that takes longer is compiled when it is launched."""


@contextmanager
def compiling_ahead(
    planned: Plan, device: torch.device, limits: Limits, jobs: int
) -> Iterator[Callable[[Question, Any], str | None]]:
    """What a search of a plan will launch on a device is compiled, in so many processes and in its order.

    The context gives a function that waits for a question's configuration, and says why it does not compile, if so.
    """
    target = target_of(torch.empty(0, device=device))
    begun: dict[tuple[Question, Any], Future[str | None]] = {}

    def why_not(question: Question, config: Any) -> str | None:
        future = begun.get((question, config))
        # If there is none, or the process failed in another way, the search finds out for itself.
        return None if future is None or future.exception() is not None else future.result()

    pool = _processes(jobs)
    try:
        for case, direction, _ in planned.entries:
            about = (case.op.name, case.sample, case.dtype, target, direction)
            for question in _questions(*about):
                for config in question.space[: limits.configs]:
                    if (question, config) not in begun:
                        work = (*about, question.function.name, question.key, config, limits.compile_seconds)
                        begun[question, config] = pool.submit(_why_not, *work)
        yield why_not
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
        try:
            for begun in [pool.submit(compile_one) for compile_one in kernels.values()]:
                begun.exception()  # one that does not compile tells so when it is launched
        except BaseException:  # as of Ctrl-C: what has not begun is not waited for
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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


def _questions(op: str, sample: Sample, dtype: torch.dtype, target: Target, direction: Direction) -> list[Question]:
    """What a call will ask; nothing if it is refused, as the search will see."""
    with tuning.observed() as questions, suppress(Exception):
        _compilations(op, sample, dtype, target, direction)
    return [*questions]


def _why_not(
    op: str,
    sample: Sample,
    dtype: torch.dtype,
    target: Target,
    direction: Direction,
    function: str,
    key: str,
    config: Any,
    seconds: float,
) -> str | None:
    """Why a configuration does not compile; None: it does, and what it launches lies in the disk cache."""
    about = (op, sample, dtype, target, direction)
    question = next(one for one in _questions(*about) if (one.function.name, one.key) == (function, key))
    with tuning.forced(question, config):
        kernels = _compilations(*about)
    try:
        with ct.compiler_timeout(seconds):
            for kernel in kernels:
                compile_case(kernel, target.arch)
    except CompilationError as error:
        return str(error)
    return None


def _compilations(
    op: str, sample: Sample, dtype: torch.dtype, target: Target, direction: Direction
) -> list[Compilation]:
    """What a call would launch, or, in the backward direction, with its gradients."""
    implementation = load_implementation(op, "cutile")
    with recording(target=target) as launches:
        arguments = materialize(sample, dtype=dtype, device="meta")
        if direction != "backward":
            implementation(arguments)
        if direction != "forward" and implementation.contract.gradient is not None and arguments.get("out") is None:
            implementation.differentiate(arguments)
    return [Compilation(op=op, sample=sample.name, dtype=dtype, launch=launch) for launch in launches]
