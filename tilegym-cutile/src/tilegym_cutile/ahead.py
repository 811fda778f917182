"""Compiles the kernels that a search is about to launch, in processes beside it.

cuda-tile compiles one kernel at a time in a process, and some take tens of seconds; but it looks first into its disk
cache, where it finds what another process has compiled. The processes need no GPU: they run the op's host code on meta
tensors, as if on the device, and compile what it would launch.
"""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import cuda.tile as ct

from tilegym.errors import CompilationError
from tilegym.testing import load_implementation, materialize
from tilegym_cutile import tuning
from tilegym_cutile.compilation import Case as Compilation
from tilegym_cutile.compilation import compile_case
from tilegym_cutile.runtime import Launch, Target, recording

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    import torch

    from tilegym.benchmarking.cases import Case
    from tilegym.contract import Sample
    from tilegym_cutile.tuning import Question

    Begin = Callable[[Case, Question, Sequence[Any]], Callable[[Any], str | None]]


@contextmanager
def compiling_ahead(jobs: int, compile_seconds: float) -> Iterator[Begin]:
    """So many processes, which take up to `compile_seconds` for a kernel; they start with the first work.

    What the context gives is called with a case, a question that its call asks, and configurations: it begins to
    compile, for each, what the call would launch if it were the answer. It returns a function that waits for one of
    them, and says why it does not compile, if so.
    """
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=get_context("spawn"),  # a fork would share the GPU's state
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for the search
    )

    def begin(case: Case, question: Question, configs: Sequence[Any]) -> Callable[[Any], str | None]:
        about = (case.op.name, case.sample, case.dtype, question.target, question.function.name, question.key)
        begun = {config: pool.submit(_why_not, *about, config, compile_seconds) for config in configs}
        return lambda config: _result(begun[config])

    try:
        yield begin
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[str | None]) -> str | None:
    """What came out; None too if the process failed in another way, since a search then finds out for itself."""
    return None if future.exception() is not None else future.result()


def _why_not(
    op: str, sample: Sample, dtype: torch.dtype, target: Target, function: str, key: str, config: Any, seconds: float
) -> str | None:
    """Why a configuration does not compile; None: it does, and what it launches lies in the disk cache."""
    with tuning.observed() as questions:
        _launches(op, sample, dtype, target)
    question = next(one for one in questions if (one.function.name, one.key) == (function, key))
    with tuning.forced(question, config):
        launches = _launches(op, sample, dtype, target)
    try:
        with ct.compiler_timeout(seconds):
            for launch in launches:
                compile_case(Compilation(op=op, sample=sample.name, dtype=dtype, launch=launch), target.arch)
    except CompilationError as error:
        return str(error)
    return None


def _launches(op: str, sample: Sample, dtype: torch.dtype, target: Target) -> list[Launch]:
    """What a call and, if it has one, its backward would launch."""
    implementation = load_implementation(op, "cutile")
    with recording(target=target) as launches:
        arguments = materialize(sample, dtype=dtype, device="meta")
        implementation(arguments)
        if implementation.contract.gradient is not None and arguments.get("out") is None:
            implementation.differentiate(arguments)
    return launches
