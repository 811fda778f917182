"""What this device can do at the most, measured in the run that is compared with it: a copy, and a matrix product.

An op is bound by memory if it does fewer operations a byte than the device does in the time that it takes to move one;
its speed is then in GB/s beside that of the copy. Else it is in TFLOP/s beside that of the matrix product. Under 16
operations a byte an op is no matrix product, and in GB/s even where a device, such as a CPU in bfloat16, multiplies
slowly.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from tilegym.benchmarking.results import Ceilings
from tilegym.benchmarking.timing import time_calls

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilegym.benchmarking.results import Unit

_LEAST_COMPUTE: Final = 16
_MULTIPLIED: Final = {
    "cuda": (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    "cpu": (torch.float32, torch.float16, torch.bfloat16),
}
_COPIED: Final = {"cuda": 2**30, "cpu": 2**26}
_SIZE: Final = {"cuda": 8192, "cpu": 512}
"""Of the square matrices. A GPU needs large ones; so does a CPU, a little, and not every one is fast in bfloat16."""


def measure_ceilings(device: torch.device, dtypes: Iterable[torch.dtype]) -> Ceilings:
    """Measure both, each by the 20th percentile of its times: what disturbs a run makes no ceiling.

    Args:
        device: of which they are.
        dtypes: of the matrix products; one that PyTorch does not multiply there has none.
    """
    products = {
        str(dtype).removeprefix("torch."): _product(device, dtype)
        for dtype in dtypes
        if dtype in _MULTIPLIED[device.type]
    }
    return Ceilings(copy_gbps=_copy(device), matmul_tflops=products)


def _copy(device: torch.device) -> float:
    source = torch.empty(_COPIED[device.type], dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    milliseconds = time_calls([lambda: target.copy_(source)], device).low
    return 2 * source.numel() / milliseconds * 1e-6


def _product(device: torch.device, dtype: torch.dtype) -> float:
    size = _SIZE[device.type]
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    if dtype.itemsize > 1:
        multiply = partial(torch.mm, a, b)
    else:
        one = torch.ones((), device=device)
        multiply = partial(torch._scaled_mm, a, b.mT, one, one, out_dtype=torch.bfloat16)  # noqa: SLF001 - the only one
    milliseconds = time_calls([multiply], device).low
    return 2 * size**3 / milliseconds * 1e-9


def unit_of(ceilings: Ceilings, dtype: str, intensity: float) -> Unit:
    """What binds an op of so many operations a byte; memory, if the dtype has no ceiling of its own."""
    compute = ceilings.matmul_tflops.get(dtype)
    if compute is None or intensity < _LEAST_COMPUTE or intensity * ceilings.copy_gbps <= compute * 1000:
        return "GB/s"
    return "TFLOP/s"


def ceiling_of(ceilings: Ceilings, dtype: str, unit: Unit) -> float:
    """The ceiling in that unit."""
    return ceilings.copy_gbps if unit == "GB/s" else ceilings.matmul_tflops[dtype]
