"""matmul: TFLOP/s of each backend for square matrices. `python benchmarks/bench_matmul.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(9, 14)], "small": [64, 128], "unit": "TFLOP/s"}


@triton.testing.perf_report(
    [create_benchmark_config("matmul", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_matmul(N, backend, datatype):
    arguments = {name: torch.randn(N, N, dtype=datatype, device=DEVICE) for name in "ab"}
    return figure("matmul", backend, arguments, "TFLOP/s")


if __name__ == "__main__":
    bench_matmul.run(print_data=True)
