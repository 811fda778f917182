"""mla: TFLOP/s of each backend by the length of sequences. `python benchmarks/bench_mla.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "S", "x_vals": [2**exponent for exponent in range(9, 15)], "small": [128, 256]}
HEADS = 32 if DEVICE.type == "cuda" else 2


@triton.testing.perf_report(
    [create_benchmark_config("mla", datatype, **SIZES, unit="TFLOP/s") for datatype in (torch.float16, torch.bfloat16)]
)
def bench_mla(S, backend, datatype):
    q, k, v = (torch.randn(1, HEADS, S, 128, dtype=datatype, device=DEVICE) for _ in "qkv")
    qpe, kpe = (torch.randn(1, heads, S, 64, dtype=datatype, device=DEVICE) for heads in (HEADS, 1))
    return figure("mla", backend, {"q": q, "k": k, "v": v, "qpe": qpe, "kpe": kpe, "is_causal": True}, "TFLOP/s")


if __name__ == "__main__":
    bench_mla.run(print_data=True)
