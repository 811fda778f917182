"""silu_and_mul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import (
    Contract,
    Gradient,
    Sample,
    TensorSpec,
    check_beside,
    check_not_expanded,
    check_tensor,
)
from tilegym.errors import ShapeError
from tilegym.op import dispatch
from tilegym.sharding import rows


@dispatch("silu_and_mul")
def silu_and_mul(input: Tensor, out: Tensor | None = None, **kwargs: Any) -> Tensor:
    """Gated activation: `h = input.shape[-1] // 2; torch.nn.functional.silu(input[..., :h]) * input[..., h:]`.

    Args:
        input: (..., 2h), float32, float16 or bfloat16, any strides.
        out: (..., h), input's dtype and device, any strides; written and returned if given. It may be one half of
            input itself, or memory that shares no element with input.
        **kwargs: options of the backend.

    Returns:
        Tensor (..., h) of input's dtype, contiguous unless `out` is given. Computed in float32 and rounded once.

    Raises:
        ShapeError: input has no dimension or an odd last one; out has another shape.
        DtypeError: input has another dtype; out has another dtype than input.
        DeviceError: out is on another device.
        ArgumentValueError: out is expanded (stride 0).

    Gradient: input; not with `out`.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020 (SwiGLU without the projections).
    """
    raise NotImplementedError


def canonical(input: Tensor, out: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    check_tensor("silu_and_mul", "input", input, least_rank=1)
    width = input.shape[-1]
    if width % 2:
        raise ShapeError(f"silu_and_mul: the last dimension of input must be even, got {width}")
    if out is not None:
        shape = (*input.shape[:-1], width // 2)
        check_beside("silu_and_mul", "out", out, input, "input", shape=shape, dtypes=(input.dtype,))
        check_not_expanded("silu_and_mul", "out", out)
    return input, out


def reference(input: Tensor, out: Tensor | None = None) -> Tensor:
    gate, up = input.chunk(2, dim=-1) if input.shape[-1] else (input, input)
    return gate / (1 + torch.exp(-gate)) * up


def magnitude(input: Tensor, out: Tensor | None = None) -> Tensor:
    return reference(input.abs())


def gradient_magnitude(grad_output: Tensor, input: Tensor, out: Tensor | None = None) -> tuple[Tensor]:
    gate, up = input.abs().tensor_split(2, dim=-1)
    sigmoid = 1 / (1 + torch.exp(-gate))
    return (torch.cat([grad_output * up * (sigmoid + gate * sigmoid), grad_output * gate * sigmoid], -1),)


def fake(input: Tensor, out: Tensor | None = None) -> Tensor:
    if out is not None:
        return out
    return torch.empty((*input.shape[:-1], input.shape[-1] // 2), dtype=input.dtype, device=input.device)


def samples() -> Iterator[Sample]:
    for shape in [(0, 8), (3, 0), (2,), (1, 2), (5, 18), (7, 514), (2, 3, 2018), (64, 2048), (2, 28672)]:
        yield Sample(name=f"input{shape}", args={"input": TensorSpec(shape=shape)})
    for layout in ("transposed", "sliced", "expanded", "strided"):
        yield Sample(name=layout, args={"input": TensorSpec(shape=(6, 34), layout=layout)})
        yield Sample(name=f"{layout}-4d", args={"input": TensorSpec(shape=(2, 3, 4, 66), layout=layout)})
    yield Sample(name="special", args={"input": TensorSpec(shape=(8, 34), fill="special")})
    yield Sample(name="large", args={"input": TensorSpec(shape=(8, 300), fill="large")})
    for out_layout in ("contiguous", "transposed", "sliced", "strided"):
        args = {"input": TensorSpec(shape=(6, 34)), "out": TensorSpec(shape=(6, 17), layout=out_layout)}
        yield Sample(name=f"out-{out_layout}", args=args)


def benchmarks() -> Iterator[Sample]:
    for m, h in [(256, 1024), (512, 1024), (4096, 1024), (4096, 4096), (4096, 14336), (8192, 14336)]:
        yield Sample(name=f"{m}x(2*{h})", args={"input": TensorSpec(shape=(m, 2 * h))})


silu_and_mul.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, out=None: 1,
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda input, out=None: input.numel() * input.element_size() * 3 // 2,
    gradient=Gradient(inputs=("input",), magnitude=gradient_magnitude, saved=("input",), like=("input",)),
    sharding=rows("input"),
    flops=lambda input, out=None: 5 * input.numel() // 2,
)
