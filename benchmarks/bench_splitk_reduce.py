"""splitk_reduce: GB/s of each backend by the number of splits. `python benchmarks/bench_splitk_reduce.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "splits", "x_vals": [2**exponent for exponent in range(1, 7)], "small": [2, 16]}
HEADS = (32, 16, 512) if DEVICE.type == "cuda" else (1, 16, 64)


@triton.testing.perf_report(
    [create_benchmark_config("splitk_reduce", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_splitk_reduce(splits, backend, datatype):
    batch, heads, size = HEADS
    arguments = {
        "attn_splitk_out": torch.randn(batch, heads, splits, size, device=DEVICE),
        "lse_splitk_out": torch.randn(batch, heads, splits, device=DEVICE),
        "attn_out": torch.empty(batch, heads, size, dtype=datatype, device=DEVICE),
        "S_kv": 8192,
    }
    return figure("splitk_reduce", backend, arguments)


if __name__ == "__main__":
    bench_splitk_reduce.run(print_data=True)
