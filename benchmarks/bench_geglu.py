"""geglu: GB/s of each backend by the width of a half. `python benchmarks/bench_geglu.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "H", "x_vals": [2**exponent for exponent in range(8, 15)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("geglu", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_geglu(H, backend, datatype):
    return figure("geglu", backend, {"input": torch.randn(ROWS, 2 * H, dtype=datatype, device=DEVICE)})


if __name__ == "__main__":
    bench_geglu.run(print_data=True)
