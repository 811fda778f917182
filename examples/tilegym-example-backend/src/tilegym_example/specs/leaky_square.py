"""leaky_square."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym import dispatch
from tilegym.contract import Contract, Sample, TensorSpec, check_tensor
from tilegym.errors import ArgumentTypeError
from tilegym.sharding import rows


@dispatch("leaky_square")
def leaky_square(x: Tensor, slope: float = 0.1, **kwargs: Any) -> Tensor:
    """Square that keeps a little of the negative side: `torch.where(x < 0, slope * x * x, x * x)`.

    Args:
        x: any shape, float32, float16 or bfloat16, any strides.
        slope: factor on the square of negative elements; any float.
        **kwargs: options of the backend.

    Returns:
        Tensor of x's shape and dtype, contiguous. Computed in float32 and rounded once.

    Raises:
        DtypeError: x has another dtype.
        ArgumentTypeError: x is no tensor, or slope is no number.

    Source: made up for this example.
    """
    raise NotImplementedError


def canonical(x: Tensor, slope: float = 0.1) -> tuple[Tensor, float]:
    check_tensor("example.leaky_square", "x", x)
    if not isinstance(slope, (int, float)):
        raise ArgumentTypeError(f"example.leaky_square: slope must be a number, got {type(slope).__name__}")
    return x, float(slope)


def reference(x: Tensor, slope: float) -> Tensor:
    return torch.where(x < 0, slope, 1.0) * x**2


def magnitude(x: Tensor, slope: float) -> Tensor:
    return reference(x, slope).abs()


def fake(x: Tensor, slope: float) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def samples() -> Iterator[Sample]:
    for shape in [(), (0, 8), (1,), (5, 257), (2, 3, 1009), (64, 1024)]:
        yield Sample(name=f"x{shape}", args={"x": TensorSpec(shape=shape)})
    for layout in ("transposed", "sliced", "expanded", "strided"):
        yield Sample(name=layout, args={"x": TensorSpec(shape=(6, 33), layout=layout)})
    yield Sample(name="special", args={"x": TensorSpec(shape=(8, 33), fill="special")})
    yield Sample(name="negative-slope", args={"x": TensorSpec(shape=(6, 33)), "slope": -0.5})


leaky_square.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda x, slope: 1,
    fake=fake,
    samples=samples,
    bytes_moved=lambda x, slope: 2 * x.numel() * x.element_size(),
    flops=lambda x, slope: 2 * x.numel(),
    sharding=rows("x", within=0),
)
