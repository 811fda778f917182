"""attention_sink_decode: GB/s by the number of keys. `python benchmarks/bench_attention_sink_decode.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "keys", "x_vals": [2**exponent for exponent in range(10, 16)], "small": [128, 256]}
BATCH = 16 if DEVICE.type == "cuda" else 1


def normal(*shape, datatype):
    return torch.randn(shape, dtype=datatype, device=DEVICE)


@triton.testing.perf_report(
    [
        create_benchmark_config("attention_sink_decode", datatype, **SIZES)
        for datatype in (torch.float16, torch.bfloat16)
    ]
)
def bench_attention_sink_decode(keys, backend, datatype):
    query, sinks = normal(BATCH, 1, 8, 8, 64, datatype=datatype), normal(64, datatype=datatype)
    key, value = (normal(BATCH, keys, 8, 64, datatype=datatype) for _ in "kv")
    arguments = {"query": query, "key": key, "value": value, "sinks": sinks, "start_q": keys - 1}
    return figure("attention_sink_decode", backend, arguments)


if __name__ == "__main__":
    bench_attention_sink_decode.run(print_data=True)
