"""group_gemm: TFLOP/s of each backend for groups of square matrices. `python benchmarks/bench_group_gemm.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(9, 13)], "small": [32, 64], "unit": "TFLOP/s"}
MEMBERS = 8 if DEVICE.type == "cuda" else 3


@triton.testing.perf_report(
    [create_benchmark_config("group_gemm", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_group_gemm(N, backend, datatype):
    group_A, group_B = ([torch.randn(N, N, dtype=datatype, device=DEVICE) for _ in range(MEMBERS)] for _ in "AB")
    return figure("group_gemm", backend, {"group_A": group_A, "group_B": group_B}, "TFLOP/s")


if __name__ == "__main__":
    bench_group_gemm.run(print_data=True)
