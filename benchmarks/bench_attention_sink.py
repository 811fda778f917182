"""attention_sink: TFLOP/s of each backend by the length of sequences. `python benchmarks/bench_attention_sink.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "S", "x_vals": [2**exponent for exponent in range(9, 15)], "small": [128, 256]}
HEADS = 32 if DEVICE.type == "cuda" else 2


@triton.testing.perf_report(
    [
        create_benchmark_config("attention_sink", datatype, **SIZES, unit="TFLOP/s")
        for datatype in (torch.float16, torch.bfloat16)
    ]
)
def bench_attention_sink(S, backend, datatype):
    query = torch.randn(1, S, HEADS // 2, 2, 64, dtype=datatype, device=DEVICE)
    key, value = (torch.randn(1, S, HEADS // 2, 64, dtype=datatype, device=DEVICE) for _ in "kv")
    sinks = torch.randn(HEADS, dtype=datatype, device=DEVICE)
    return figure("attention_sink", backend, {"query": query, "key": key, "value": value, "sinks": sinks}, "TFLOP/s")


if __name__ == "__main__":
    bench_attention_sink.run(print_data=True)
