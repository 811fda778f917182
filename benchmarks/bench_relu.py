"""relu: GB/s of each backend by the number of columns. `python benchmarks/bench_relu.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 16)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("relu", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_relu(N, backend, datatype):
    return figure("relu", backend, {"x": torch.randn(ROWS, N, dtype=datatype, device=DEVICE)})


if __name__ == "__main__":
    bench_relu.run(print_data=True)
