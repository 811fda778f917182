"""softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_tensor
from tilegym.errors import ShapeError
from tilegym.op import dispatch
from tilegym.sharding import rows


@dispatch("softmax")
def softmax(x: Tensor, use_tma: bool = False, **kwargs: Any) -> Tensor:
    """Softmax over the last dimension: `torch.softmax(x, dim=-1)`.

    Args:
        x: (..., N), float32, float16 or bfloat16, any strides; N from 1 to 262,144.
        use_tma: hint: load tiles through the tensor memory accelerator.
        **kwargs: hints `use_chunked`, `use_multi_wave`, and options of the backend.

    Returns:
        Tensor of x's shape and dtype, contiguous. Computed in float32 and rounded once. A row of all -inf, or one
        that holds NaN or +inf, is NaN, as in torch.

    Raises:
        ShapeError: x has no dimension, or its last is over 262,144.
        DtypeError: x has another dtype.

    Gradient: x.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """
    raise NotImplementedError


MAX_COLUMNS = 262_144


def canonical(x: Tensor) -> tuple[Tensor]:
    check_tensor("softmax", "x", x, least_rank=1)
    if x.shape[-1] > MAX_COLUMNS:
        raise ShapeError(f"softmax: the last dimension of x must be at most {MAX_COLUMNS}, got {x.shape[-1]}")
    return (x,)


def reference(x: Tensor) -> Tensor:
    shifted = x - x.amax(-1, keepdim=True) if x.shape[-1] else x
    numerator = shifted.exp()
    return numerator / numerator.sum(-1, keepdim=True)


def gradient_magnitude(grad_output: Tensor, x: Tensor) -> tuple[Tensor]:
    y = reference(x)
    return (y * (grad_output + (grad_output * y).sum(-1, keepdim=True)),)


def fake(x: Tensor) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def samples() -> Iterator[Sample]:
    for shape in [(0, 8), (3, 0), (1,), (4, 1), (1, 9), (5, 257), (2, 3, 1009), (64, 1024)]:
        yield Sample(name=f"x{shape}", args={"x": TensorSpec(shape=shape)})
    for shape in [(2, 4096), (1, 32768), (1, 65537), (1, MAX_COLUMNS)]:
        yield Sample(name=f"x{shape}", args={"x": TensorSpec(shape=shape)})
    for layout in ("transposed", "sliced", "expanded", "strided"):
        yield Sample(name=layout, args={"x": TensorSpec(shape=(6, 33), layout=layout)})
        yield Sample(name=f"{layout}-4d", args={"x": TensorSpec(shape=(2, 3, 4, 65), layout=layout)})
    for shape in [(8, 33), (8, 5000)]:
        yield Sample(name=f"special{shape}", args={"x": TensorSpec(shape=shape, fill="special")})
    yield Sample(name="large", args={"x": TensorSpec(shape=(8, 300), fill="large")})


def benchmarks() -> Iterator[Sample]:
    small = [(256, 1024), (1024, 1024), (4096, 1024), (4096, 4096)]
    for shape in [*small, (32768, 257), (32768, 1024), (16384, 4096), (8192, 16384), (4096, 65536)]:
        yield Sample(name="x".join(map(str, shape)), args={"x": TensorSpec(shape=shape)})


softmax.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=reference,  # every term is positive already
    reduction=lambda x: x.shape[-1],
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda x: 2 * x.numel() * x.element_size(),
    flops=lambda x: 5 * x.numel(),
    sharding=rows("x"),
    gradient=Gradient(inputs=("x",), magnitude=gradient_magnitude, saved=("output",), like=("output",)),
    hints={"use_tma": (False, True), "use_chunked": (None, False, True), "use_multi_wave": (None, False, True)},
)
