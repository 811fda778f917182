"""What a benchmark file of one op needs (`benchmarks/bench_softmax.py`): its configurations, and a checked figure.

Such files are in the form of `triton.testing.perf_report`. Without a GPU they run small sizes on the CPU's backends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym import registry
from tilegym.availability import why_unusable
from tilegym.benchmarking.checked import checked_calls
from tilegym.benchmarking.plots import SUFFIX
from tilegym.benchmarking.timing import rotation, time_calls
from tilegym.errors import NoImplementationError, RegistrationError
from tilegym.selection import candidates_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from triton.testing import Benchmark

    from tilegym.benchmarking.results import Unit

DEVICE: Final = torch.device("cuda" if torch.cuda.is_available() else "cpu")
_STYLES: Final = ("-", "--", "-.", ":")


def get_supported_backends(op: str) -> list[str]:
    """The backends that implement an op and can run on `DEVICE`, peers last."""
    known = registry.backends()
    able = [name for name in candidates_of(registry.get_op(op)) if why_unusable(known[name], DEVICE) is None]
    return sorted(able, key=lambda name: known[name].peer)


def create_benchmark_config(
    op: str,
    datatype: torch.dtype,
    *,
    x_name: str,
    x_vals: Sequence[int],
    small: Sequence[int],
    unit: Unit = "GB/s",
) -> Benchmark:
    """A plot: a line for each backend over sizes.

    Args:
        op: its name.
        datatype: what the benchmark function is given as `datatype`.
        x_name: its parameter that is varied.
        x_vals: the values on a GPU.
        small: the values on a CPU.
        unit: what the function returns.
    """
    from triton.testing import Benchmark

    backends = get_supported_backends(op)
    dtype_name = str(datatype).removeprefix("torch.")
    return Benchmark(
        x_names=[x_name],
        x_vals=list(x_vals if DEVICE.type == "cuda" else small),
        line_arg="backend",
        line_vals=backends,
        line_names=backends,
        styles=[(None, _STYLES[index % len(_STYLES)]) for index in range(len(backends))],
        ylabel=unit,
        plot_name=f"{op}-{dtype_name}-{DEVICE.type}-{SUFFIX[unit]}",
        args={"datatype": datatype},
    )


def figure(op: str, backend: str, arguments: dict[str, Any], unit: Unit = "GB/s") -> float:
    """Check an op's result against float64, then time it: GB/s or TFLOP/s by the median, NaN of a call it refuses.

    Raises:
        WrongAnswerError: the result is wrong.
        RegistrationError: the op has no contract.
    """
    found = registry.get_op(op)
    contract = found.contract
    if contract is None:
        raise RegistrationError(f"op {op!r} has no contract, and so nothing to check results by")
    canonical = contract.canonical(**{name: value for name, value in arguments.items() if name not in contract.hints})
    moved = contract.bytes_moved(*canonical)
    try:
        calls = checked_calls(found, contract, backend, rotation(arguments, moved, DEVICE)).calls
    except NoImplementationError:
        return math.nan
    milliseconds = time_calls(calls, DEVICE, seconds=0.1).median
    return (moved * 1e-6 if unit == "GB/s" else contract.flops(*canonical) * 1e-9) / milliseconds
