"""swiglu: GB/s of each backend by the number of columns. `python benchmarks/bench_swiglu.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 15)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("swiglu", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_swiglu(N, backend, datatype):
    a, b = (torch.randn(ROWS, N, dtype=datatype, device=DEVICE) for _ in range(2))
    return figure("swiglu", backend, {"a": a, "b": b})


if __name__ == "__main__":
    bench_swiglu.run(print_data=True)
