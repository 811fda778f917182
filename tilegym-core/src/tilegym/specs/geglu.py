"""geglu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, Way, check_int, check_tensor
from tilegym.errors import ArgumentValueError, ShapeError
from tilegym.op import dispatch
from tilegym.sharding import OUTPUT
from tilegym.specs._activations import check_approximate, gelu, gelu_slope


@dispatch("geglu")
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    """Gated GELU: `a, b = input.chunk(2, dim); a * torch.nn.functional.gelu(b, approximate=approximate)`.

    Args:
        input: any shape of at least one dimension, float32, float16 or bfloat16, any strides.
        dim: the dimension that is halved, of even size.
        approximate: "none" or "tanh", as in `gelu`.

    Returns:
        Tensor of input's dtype and, but for the half of `dim`, its shape; contiguous. Computed in float32 and rounded
        once.

    Raises:
        ShapeError: input has no dimension, or `dim` an odd size.
        DtypeError: input has another dtype.
        ArgumentTypeError: dim is no int.
        ArgumentValueError: input has no dimension `dim`; approximate is something else.

    Gradient: input.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020 (GEGLU without the projections; the second half is
    activated, not the first).
    """
    raise NotImplementedError


def canonical(input: Tensor, dim: int = -1, approximate: str = "none") -> tuple[Tensor, int, str]:
    check_tensor("geglu", "input", input, least_rank=1)
    check_approximate("geglu", approximate)
    check_int("geglu", "dim", dim)
    rank = input.dim()
    if not -rank <= dim < rank:
        raise ArgumentValueError(
            f"geglu: dim must be from {-rank} to {rank - 1} for input of {rank} dimensions, got {dim}"
        )
    if input.shape[dim] % 2:
        raise ShapeError(f"geglu: dimension {dim} of input must be of even size, got {input.shape[dim]}")
    return input, dim % rank, approximate


def reference(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    a, b = input.tensor_split(2, dim)
    return a * gelu(b, approximate)


def magnitude(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    return reference(input.abs(), dim, approximate)


def gradient_magnitude(grad_output: Tensor, input: Tensor, dim: int = -1, approximate: str = "none") -> tuple[Tensor]:
    a, b = input.abs().tensor_split(2, dim)
    return (torch.cat([grad_output * gelu(b, approximate), grad_output * a * gelu_slope(b, approximate)], dim),)


def fake(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:
    shape = [size // 2 if d == dim else size for d, size in enumerate(input.shape)]
    return torch.empty(shape, dtype=input.dtype, device=input.device)


def samples() -> Iterator[Sample]:
    for shape in [(0, 8), (3, 0), (2,), (6, 34), (2, 3, 4, 66), (3, 5000)]:
        yield Sample(name=f"input{shape}", args={"input": TensorSpec(shape=shape)})
    for shape, dim in [((6, 34), 0), ((4, 6, 35), -2)]:
        yield Sample(name=f"dim{dim}", args={"input": TensorSpec(shape=shape), "dim": dim})
    yield Sample(name="tanh", args={"input": TensorSpec(shape=(6, 34)), "approximate": "tanh"})
    for fill in ("special", "large"):
        yield Sample(name=fill, args={"input": TensorSpec(shape=(8, 600), fill=fill)})


def benchmarks() -> Iterator[Sample]:
    for m, half in [(256, 1024), (512, 1024), (4096, 1024), (4096, 4096), (8192, 14336)]:
        yield Sample(name=f"{m}x(2*{half})", args={"input": TensorSpec(shape=(m, 2 * half))})


def ways(input: Tensor, dim: int, *_: Any) -> Iterator[Way]:
    """Any dimension but the one that is halved."""
    for other in range(input.dim()):
        if other != dim:
            yield {"input": other, OUTPUT: other}


geglu.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, dim=-1, approximate="none": 1,
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda input, dim=-1, approximate="none": input.numel() * input.element_size() * 3 // 2,
    flops=lambda input, dim=-1, approximate="none": 6 * input.numel() // 2,
    sharding=ways,
    gradient=Gradient(inputs=("input",), magnitude=gradient_magnitude, saved=("input",), like=("input",)),
)
