"""relu."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_tensor
from tilegym.op import dispatch
from tilegym.sharding import rows


@dispatch("relu")
def relu(x: Tensor) -> Tensor:
    """Rectified linear unit: `torch.relu(x)`, the larger of each element and 0.

    Args:
        x: any shape, float32, float16 or bfloat16, any strides.

    Returns:
        Tensor of x's shape and dtype, with the strides of `torch.empty_like(x)`. Exact; NaN stays NaN.

    Raises:
        DtypeError: x has another dtype.

    Gradient: x; 0 where x is 0.

    Source: Nair and Hinton, "Rectified Linear Units Improve Restricted Boltzmann Machines", 2010.
    """
    raise NotImplementedError


def canonical(x: Tensor) -> tuple[Tensor]:
    check_tensor("relu", "x", x)
    return (x,)


def reference(x: Tensor) -> Tensor:
    return torch.where(x <= 0, 0.0, x)


def samples() -> Iterator[Sample]:
    for shape in [(), (0, 8), (6, 33), (2, 3, 4, 65), (3, 5000)]:
        yield Sample(name=f"x{shape}", args={"x": TensorSpec(shape=shape)})
    for fill in ("special", "large"):
        yield Sample(name=fill, args={"x": TensorSpec(shape=(8, 600), fill=fill)})


def benchmarks() -> Iterator[Sample]:
    for m, n in [(256, 1024), (1024, 1024), (4096, 1024), (4096, 4096), (8192, 28672)]:
        yield Sample(name=f"{m}x{n}", args={"x": TensorSpec(shape=(m, n))})


relu.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=lambda x: reference(x.abs()),
    reduction=lambda x: 1,
    fake=torch.empty_like,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda x: 2 * x.numel() * x.element_size(),
    flops=lambda x: x.numel(),
    sharding=rows("x", within=0),
    gradient=Gradient(
        inputs=("x",), magnitude=lambda grad, x: (grad,), saved=("output",), like=("output",), dense=True
    ),
)
