"""gelu: GB/s of each backend by the number of columns. `python benchmarks/bench_gelu.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 16)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("gelu", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_gelu(N, backend, datatype):
    return figure("gelu", backend, {"input": torch.randn(ROWS, N, dtype=datatype, device=DEVICE)})


if __name__ == "__main__":
    bench_gelu.run(print_data=True)
