"""dropout: GB/s of each backend by the number of columns. `python benchmarks/bench_dropout.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 16)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("dropout", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_dropout(N, backend, datatype):
    x = torch.randn(ROWS, N, dtype=datatype, device=DEVICE)
    return figure("dropout", backend, {"x": x, "seed": 7})


if __name__ == "__main__":
    bench_dropout.run(print_data=True)
