"""softmax: GB/s of each backend by the number of columns. `python benchmarks/bench_softmax.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 17)], "small": [256, 1024]}
ROWS = 4096 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("softmax", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_softmax(N, backend, datatype):
    return figure("softmax", backend, {"x": torch.randn(ROWS, N, dtype=datatype, device=DEVICE)})


if __name__ == "__main__":
    bench_softmax.run(print_data=True)
