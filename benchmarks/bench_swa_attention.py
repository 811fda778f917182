"""swa_attention: TFLOP/s of each backend by the length of sequences. `python benchmarks/bench_swa_attention.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "S", "x_vals": [2**exponent for exponent in range(9, 15)], "small": [128, 256]}
HEADS = 32 if DEVICE.type == "cuda" else 2


@triton.testing.perf_report(
    [
        create_benchmark_config("swa_attention", datatype, **SIZES, unit="TFLOP/s")
        for datatype in (torch.float16, torch.bfloat16)
    ]
)
def bench_swa_attention(S, backend, datatype):
    q, k, v = (torch.randn(1, HEADS, S, 128, dtype=datatype, device=DEVICE) for _ in "qkv")
    return figure("swa_attention", backend, {"q": q, "k": k, "v": v, "window_size": 1024}, "TFLOP/s")


if __name__ == "__main__":
    bench_swa_attention.run(print_data=True)
