"""Times calls: cold caches, inputs in rotation, and the median with its spread.

On a GPU `triton.testing.do_bench` overwrites the L2 cache before each call; replayed from a CUDA graph, and on a CPU,
calls take turns on as many sets of inputs as together outgrow the cache (at most `_MOST_SETS`, so that the smallest
cases stay in it: what they show is the cost of a call).
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_MOST_SETS: Final = {"cuda": 32, "cpu": 4}
_LEAST_TIMES: Final = 3  # else a median and a spread say nothing
_CPU_CACHE: Final = 32 * 2**20  # more than the last level of most CPUs; torch does not tell


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Milliseconds a call."""

    median: float
    low: float
    """20th percentile."""
    high: float
    """80th percentile."""


def rotation(arguments: Mapping[str, Any], moved: int, device: torch.device) -> list[dict[str, Any]]:
    """The arguments and copies of them in memory of their own, until they outgrow the cache; at least two sets.

    Args:
        arguments: of a call.
        moved: how many bytes a call moves.
        device: where it runs.
    """
    cache = torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _CPU_CACHE
    count = min(_MOST_SETS[device.type], max(2, -(-2 * cache // max(1, moved))))
    return [dict(arguments), *({name: _copied(value) for name, value in arguments.items()} for _ in range(count - 1))]


def _copied(value: Any) -> Any:
    """A tensor with the same values and layout in other memory, also in a list; anything else as it is."""
    if isinstance(value, list):
        return [_copied(one) for one in value]
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty(0, dtype=value.dtype, device=value.device)
    storage = value.untyped_storage().clone()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    copy.set_(storage, value.storage_offset(), value.shape, value.stride())
    return copy.requires_grad_(value.requires_grad)


def time_calls(
    calls: Sequence[Callable[[], Any]], device: torch.device, *, seconds: float = 0.2, graph: bool = False
) -> Timing:
    """Time calls that do the same on inputs of their own, in turn.

    Args:
        calls: each enqueues one run.
        device: where they run.
        seconds: about how long to measure.
        graph: on a GPU, replay them from a CUDA graph, so that what the CPU spends on a call does not count.

    Raises:
        BenchmarkError: the device is a GPU and Triton is not installed.
    """
    turn = itertools.cycle(calls)

    def run() -> None:
        next(turn)()

    if device.type == "cuda":
        return _on_gpu(run, device, seconds, graph=graph)
    return _on_cpu(run, seconds)


def _on_gpu(run: Callable[[], None], device: torch.device, seconds: float, *, graph: bool) -> Timing:
    try:
        from triton.testing import do_bench, do_bench_cudagraph
    except ImportError as error:
        raise BenchmarkError(f"timing on a GPU needs Triton: python3 -m pip install triton ({error})") from error
    milliseconds = 1000 * seconds
    quantiles = [0.2, 0.5, 0.8]
    with torch.cuda.device(device):  # which is where Triton's events and its cache are
        if graph:
            low, median, high = do_bench_cudagraph(run, rep=milliseconds / 10, quantiles=quantiles)  # replayed 10 times
        else:
            low, median, high = do_bench(run, warmup=milliseconds / 4, rep=milliseconds, quantiles=quantiles)
    return Timing(median=median, low=low, high=high)


def _on_cpu(run: Callable[[], None], seconds: float) -> Timing:
    from torch.utils.benchmark import Timer

    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    times = [1000 * each for each in timer.blocked_autorange(min_run_time=seconds).times]
    times += [1000 * timer.timeit(1).mean for _ in range(_LEAST_TIMES - len(times))]
    low, _, _, high = statistics.quantiles(times, n=5, method="inclusive")
    return Timing(median=statistics.median(times), low=low, high=high)
