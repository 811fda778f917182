"""layer_norm_legacy: GB/s of each backend by the number of columns. `python benchmarks/bench_layer_norm_legacy.py`."""

import torch
import triton.testing

from tilegym.benchmarking.script import DEVICE, create_benchmark_config, figure

SIZES = {"x_name": "N", "x_vals": [2**exponent for exponent in range(8, 15)], "small": [256, 1024]}
ROWS = 8192 if DEVICE.type == "cuda" else 64


@triton.testing.perf_report(
    [create_benchmark_config("layer_norm_legacy", datatype, **SIZES) for datatype in (torch.float16, torch.bfloat16)]
)
def bench_layer_norm_legacy(N, backend, datatype):
    x, weight, bias = (torch.randn(shape, dtype=datatype, device=DEVICE) for shape in ((ROWS, N), (N,), (N,)))
    arguments = {"input": x, "normalized_shape": (N,), "weight": weight, "bias": bias, "eps": 1e-6}
    return figure("layer_norm_legacy", backend, arguments)


if __name__ == "__main__":
    bench_layer_norm_legacy.run(print_data=True)
