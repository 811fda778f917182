"""gemma_attention_decode: GB/s by the number of keys. `python benchmarks/bench_gemma_attention_decode.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "keys", "x_vals": [2**exponent for exponent in range(10, 16)], "small": [128, 256]}
BATCH = 16 if DEVICE.type == "cuda" else 1


def normal(*shape, datatype):
    return torch.randn(shape, dtype=datatype, device=DEVICE)


@triton.testing.perf_report(
    [
        create_benchmark_config("gemma_attention_decode", datatype, **SIZES)
        for datatype in (torch.float16, torch.bfloat16)
    ]
)
def bench_gemma_attention_decode(keys, backend, datatype):
    q = normal(BATCH, 16, 1, 256, datatype=datatype)
    k, v = (normal(BATCH, 8, keys, 256, datatype=datatype) for _ in "kv")
    arguments = {"q": q, "k": k, "v": v, "soft_cap": 50.0}
    return figure("gemma_attention_decode", backend, arguments)


if __name__ == "__main__":
    bench_gemma_attention_decode.run(print_data=True)
