"""silu_and_mul: GB/s of each backend by the width of a half. `python benchmarks/bench_silu_and_mul.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "H", "x_vals": [2**exponent for exponent in range(8, 15)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("silu_and_mul", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_silu_and_mul(H, backend, datatype):
    return figure("silu_and_mul", backend, {"input": torch.randn(ROWS, 2 * H, dtype=datatype, device=DEVICE)})


if __name__ == "__main__":
    bench_silu_and_mul.run(print_data=True)
