"""apply_rope_base: GB/s of each backend by the number of positions. `python benchmarks/bench_apply_rope_base.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "S", "x_vals": [2**exponent for exponent in range(8, 15)], "small": [16, 64]}
HEADS, KV_HEADS, D = 32, 8, 128


@triton.testing.perf_report(
    [create_benchmark_config("apply_rope_base", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_apply_rope_base(S, backend, datatype):
    q, k = (torch.randn(1, heads, S, D, dtype=datatype, device=DEVICE) for heads in (HEADS, KV_HEADS))
    cos, sin = (torch.randn(S, D, dtype=datatype, device=DEVICE) for _ in range(2))
    return figure("apply_rope_base", backend, {"q": q, "k": k, "cos": cos, "sin": sin})


if __name__ == "__main__":
    bench_apply_rope_base.run(print_data=True)
