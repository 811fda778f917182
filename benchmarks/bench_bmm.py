"""bmm: TFLOP/s of each backend for batches of square matrices. `python benchmarks/bench_bmm.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(7, 12)], "small": [32, 64], "unit": "TFLOP/s"}
BATCH = 16 if DEVICE.type == "cuda" else 2


@triton.testing.perf_report(
    [create_benchmark_config("bmm", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_bmm(N, backend, datatype):
    arguments = {name: torch.randn(BATCH, N, N, dtype=datatype, device=DEVICE) for name in "ab"}
    return figure("bmm", backend, arguments, "TFLOP/s")


if __name__ == "__main__":
    bench_bmm.run(print_data=True)
