"""silu_and_mul: bandwidth of each backend by size. On a GPU: `python tests/benchmark/bench_silu_and_mul.py`."""

import torch
import triton
import triton.testing

from tilegym.backend import is_backend_available
from tilegym.ops import silu_and_mul
from tilegym.testing import assert_accurate

ALL_BACKENDS = [
    ("cutile", "cuTile", ("orange", "-")) if is_backend_available("cutile") else None,
    ("torch", "PyTorch", ("green", "-")),
]


def get_supported_backends():
    return [backend for backend in ALL_BACKENDS if backend is not None]


def create_benchmark_config(datatype):
    backends, names, styles = zip(*get_supported_backends(), strict=True)
    dtype_name = str(datatype).removeprefix("torch.")
    return triton.testing.Benchmark(
        x_names=["N"],
        x_vals=[2**exponent for exponent in range(8, 16)],
        line_arg="backend",
        line_vals=list(backends),
        line_names=list(names),
        styles=list(styles),
        ylabel="GB/s",
        plot_name=f"silu-and-mul-M4096-{dtype_name}-GBps",
        args={"datatype": datatype},
    )


@triton.testing.perf_report([create_benchmark_config(datatype) for datatype in (torch.float16, torch.float32)])
def bench_silu_and_mul(N, backend, datatype, device="cuda"):
    kwargs = {"input": torch.randn(4096, 2 * N, dtype=datatype, device=device)}

    def run():
        return silu_and_mul(**kwargs, backend=backend)

    assert_accurate(silu_and_mul.contract, kwargs, run())
    milliseconds = triton.testing.do_bench(run)
    return silu_and_mul.contract.bytes_moved(*silu_and_mul.contract.canonical(**kwargs)) / milliseconds * 1e-6


if __name__ == "__main__":
    bench_silu_and_mul.run(print_data=True)
