"""Times calls: cold caches, inputs in rotation, and the median with its spread.

What is to be compared is timed together, in rounds: each has some calls, then the next. A GPU that grows warm gives the
same kernel other clocks, by some 10 % on one that is held to its power limit, and these must not make a difference.

On a GPU the L2 cache is overwritten before each call; replayed from a CUDA graph, and on a CPU, calls take turns on as
many sets of inputs as together outgrow the cache (at most `_MOST_SETS`, so that the smallest cases stay in it: what
they show is the cost of a call).
"""

from __future__ import annotations

import itertools
import statistics
import time
import traceback
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch

from tilegym.lists import each

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    Around = Callable[[Any], AbstractContextManager[Any]]
    """By name, what calls are made inside of."""
    Clock = Callable[[float], list[float]]
    """Makes calls for about so many seconds, one at the least: milliseconds of each, or of several as their mean."""

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")
_MOST_SETS: Final = {"cuda": 32, "cpu": 4}
_ROUNDS: Final = 5
_LEAST_ROUNDS: Final = 3  # of calls that take longer than they should; else a median and a spread say nothing
_READING: Final = 1e-3  # seconds that short calls are read together for, on a CPU and in a graph
_FLUSHED: Final = 256 * 2**20  # bytes, more than any GPU's L2 cache
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
    return [
        dict(arguments),
        *({name: each(_copied, value) for name, value in arguments.items()} for _ in range(count - 1)),
    ]


def _copied(value: Any) -> Any:
    """A tensor with the same values and layout in other memory; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = torch.empty(0, dtype=value.dtype, device=value.device)
    storage = value.untyped_storage().clone()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    copy.set_(storage, value.storage_offset(), value.shape, value.stride())
    return copy.requires_grad_(value.requires_grad)


def time_calls(calls: Sequence[Callable[[], Any]], device: torch.device, *, seconds: float = 0.2) -> Timing:
    """Time calls that do the same on inputs of their own, in turn; see `time_in_turns`."""
    found = time_in_turns({"": calls}, device, seconds=seconds)[""]
    if isinstance(found, Exception):
        raise found
    return found


def time_in_turns(
    groups: Mapping[K, Sequence[Callable[[], Any]]],
    device: torch.device,
    *,
    seconds: float = 0.2,
    graph: bool = False,
    around: Around = nullcontext,
) -> dict[K, Timing | Exception]:
    """Time several ways to do one thing, in rounds; of each the timing, or what it raised.

    Args:
        groups: by name, calls that do the same on inputs of their own; each enqueues one run, and ran once before.
        device: where they run.
        seconds: about how long to measure each.
        graph: on a GPU, replay them from a CUDA graph, so that what the CPU spends on a call does not count.
        around: by name, what calls are made inside of.
    """
    with current(device):
        return _in_turns(groups, device, seconds, graph=graph, around=around)


@contextmanager
def current(device: torch.device, *, graph: bool = False) -> Iterator[None]:
    """A GPU as the current one; for graphs, with a stream that they can capture.

    Calls that are to be timed from a graph are made in here: a backward runs on the stream of its forward.
    """
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            if graph:
                stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
                stream.wait_stream(torch.cuda.current_stream(device))
                stack.enter_context(torch.cuda.stream(stream))
        yield


def _in_turns(
    groups: Mapping[K, Sequence[Callable[[], Any]]],
    device: torch.device,
    seconds: float,
    *,
    graph: bool,
    around: Around,
) -> dict[K, Timing | Exception]:
    clocks: dict[K, Clock] = {}
    failed: dict[K, Exception] = {}
    for name, calls in groups.items():
        with around(name):
            clock = attempt(partial(_clock, calls, device, graph=graph))
        if isinstance(clock, Exception):
            failed[name] = clock
        else:
            clocks[name] = clock
    times: dict[K, list[float]] = {name: [] for name in clocks}
    stop = time.monotonic() + 2 * seconds * len(clocks)
    for number in range(_ROUNDS):
        if number >= _LEAST_ROUNDS and time.monotonic() > stop:
            break
        for name in _from(number, [name for name in clocks if name not in failed]):  # nobody always comes first
            with around(name):
                more = attempt(partial(clocks[name], seconds / _ROUNDS))
            if isinstance(more, Exception):
                failed[name] = more
            else:
                times[name] += more
    return {name: failed[name] if name in failed else _timing(times[name]) for name in groups}


def attempt(function: Callable[[], T]) -> T | Exception:
    """What a function returns, or what it raises: whatever is wrong with one backend, the others are timed.

    What it raises is cut from the tensors that the frames of its traceback hold: the others may need that memory.
    """
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - as said above
        traceback.clear_frames(error.__traceback__)
        return error


def _from(first: int, names: Sequence[K]) -> Iterable[K]:
    """All names, from the one at `first` on and around."""
    return (names[(first + index) % len(names)] for index in range(len(names)))


def _timing(times: Sequence[float]) -> Timing:
    low, _, _, high = statistics.quantiles(times, n=5, method="inclusive")
    return Timing(median=statistics.median(times), low=low, high=high)


def _clock(calls: Sequence[Callable[[], Any]], device: torch.device, *, graph: bool) -> Clock:
    turn = itertools.cycle(calls)

    def run() -> None:
        next(turn)()

    if device.type == "cpu":
        return _cpu_clock(run)
    if graph:
        return _graph_clock(run, len(calls), device)
    overwritten = torch.empty(_FLUSHED, dtype=torch.uint8, device=device)
    return _event_clock(run, device, before=overwritten.zero_)


def _cpu_clock(run: Callable[[], None]) -> Clock:
    took = _seconds_of(run)
    together = max(1, int(_READING / took))

    def clock(seconds: float) -> list[float]:
        if took < seconds:
            run()  # not timed: others ran in between, and threads may have gone to sleep
        times: list[float] = []
        stop = time.perf_counter() + seconds
        while not times or time.perf_counter() < stop:
            times.append(1000 * _seconds_of(run, together) / together)
        return times

    return clock


def _seconds_of(run: Callable[[], Any], count: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - started


def _graph_clock(run: Callable[[], None], sets: int, device: torch.device) -> Clock:
    def finished() -> None:
        run()
        torch.cuda.synchronize(device)

    finished()
    count = max(sets, int(_READING / _seconds_of(finished)))
    return _event_clock(captured(run, device, count=count).replay, device, calls=count)


def captured(run: Callable[[], Any], device: torch.device, *, count: int = 1) -> torch.cuda.CUDAGraph:
    """A CUDA graph of so many calls, each of which ran once before; inside `current(device, graph=True)`."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream(device)):
        for _ in range(count):
            run()
    return graph


def _event_clock(
    run: Callable[[], Any], device: torch.device, *, before: Callable[[], Any] = lambda: None, calls: int = 1
) -> Clock:
    """Times `run`, which makes so many calls, on the GPU itself, each time after `before`."""

    def times(count: int) -> list[float]:
        event = partial(torch.cuda.Event, enable_timing=True)
        events = [(event(), event()) for _ in range(count)]
        for start, end in events:
            before()
            start.record()
            run()
            end.record()
        torch.cuda.synchronize(device)
        return [start.elapsed_time(end) / calls for start, end in events]

    def clock(seconds: float) -> list[float]:
        run()  # not timed: the GPU had nothing to do, so that it would wait for the CPU within the time
        return times(max(1, int(seconds / took)))

    times(1)  # a graph's first replay takes longer
    took = _seconds_of(lambda: times(3)) / 3
    return clock
