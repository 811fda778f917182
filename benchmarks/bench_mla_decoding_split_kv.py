"""mla_decoding_split_kv: GB/s by the number of keys. `python benchmarks/bench_mla_decoding_split_kv.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "keys", "x_vals": [2**exponent for exponent in range(10, 16)], "small": [128, 256]}
BATCH = 16 if DEVICE.type == "cuda" else 1


def normal(*shape, datatype):
    return torch.randn(shape, dtype=datatype, device=DEVICE)


@triton.testing.perf_report(
    [
        create_benchmark_config("mla_decoding_split_kv", datatype, **SIZES)
        for datatype in (torch.float16, torch.bfloat16)
    ]
)
def bench_mla_decoding_split_kv(keys, backend, datatype):
    arguments = {
        "q": normal(BATCH, 16, 512, datatype=datatype),
        "qpe": normal(BATCH, 16, 64, datatype=datatype),
        "kv": normal(BATCH, keys, 512, datatype=datatype),
        "kpe": normal(BATCH, keys, 64, datatype=datatype),
    }
    return figure("mla_decoding_split_kv", backend, arguments)


if __name__ == "__main__":
    bench_mla_decoding_split_kv.run(print_data=True)
