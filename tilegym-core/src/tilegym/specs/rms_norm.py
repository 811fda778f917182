"""rms_norm."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_number
from tilegym.op import dispatch
from tilegym.sharding import rows
from tilegym.specs import _norms


@dispatch("rms_norm")
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    mode: str | None = None,
    **kwargs: Any,
) -> Tensor:
    """Root-mean-square norm: `input * torch.rsqrt(mean(input**2) + eps) * (offset + weight) + bias`.

    Args:
        input: (..., *normalized_shape), float32, float16 or bfloat16, any strides.
        normalized_shape: the trailing dimensions that the mean is over; an int or None means the last one.
        weight: (*normalized_shape), float32, float16 or bfloat16, on input's device; None: 1.
        eps: added to the mean of squares; not negative.
        bias: (*normalized_shape), as weight; None: 0.
        mode: hint: None, "static_persistent", "multi_wave_reload" or "multi_wave_cached".
        **kwargs: `offset` (float, 0.0) is added to weight in float32, as Gemma has it; options of the backend.

    Returns:
        Tensor of input's shape and dtype, contiguous. Computed in float32 and rounded once.

    Raises:
        ShapeError: normalized_shape is not how input's shape ends; weight or bias has another shape.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: eps is negative or NaN, or mode unknown.

    Gradient: input, weight, bias.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """
    raise NotImplementedError


def canonical(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> tuple[Tensor, tuple[int, ...], Tensor | None, float, Tensor | None, float]:
    shape = _norms.checked_shape("rms_norm", input, normalized_shape)
    _norms.check_eps("rms_norm", eps)
    check_number("rms_norm", "offset", offset)
    _norms.check_affine("rms_norm", input, shape, weight=weight, bias=bias)
    return input, shape, weight, eps, bias, offset


def _reciprocal_rms(input: Tensor, normalized_shape: tuple[int, ...], eps: float) -> Tensor:
    return 1 / torch.sqrt(input.square().mean(_norms.columns_of(normalized_shape), keepdim=True) + eps)


def reference(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    return _norms.affine(input * _reciprocal_rms(input, normalized_shape, eps), weight, bias, offset)


def magnitude(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    weight, bias = (None if tensor is None else tensor.abs() for tensor in (weight, bias))
    return reference(input.abs(), normalized_shape, weight, eps, bias, abs(offset))


def gradient_magnitude(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> tuple[Tensor, ...]:
    columns = _norms.columns_of(normalized_shape)
    rstd = _reciprocal_rms(input, normalized_shape, eps)
    normed = input.abs() * rstd
    scaled = _norms.affine(grad_output, None if weight is None else weight.abs(), None, abs(offset))
    return (
        rstd * (scaled + normed * (scaled * normed).mean(columns, keepdim=True)),
        _norms.sum_over_rows(grad_output * normed, normalized_shape),
        _norms.sum_over_rows(grad_output, normalized_shape),
    )


def fake_rstd(input: Tensor, normalized_shape: tuple[int, ...], *_: Any) -> tuple[Tensor]:
    """1 / root mean square of each row, float32."""
    return (_norms.fake_statistic(input, normalized_shape),)


def samples() -> Iterator[Sample]:
    case = functools.partial(_norms.sample, parameters=("weight",))
    for shape in [(0, 8), (3, 0), (1,), (4, 1), (1, 9), (5, 257), (2, 3, 1009), (64, 1024)]:
        yield case(f"input{shape}", shape)
    for shape in [(2, 8192), (1, 32768), (1, 65537)]:
        yield case(f"input{shape}", shape)
    for layout in ("transposed", "sliced", "expanded", "strided"):
        yield case(layout, (6, 33), input=TensorSpec(shape=(6, 33), layout=layout))
        yield case(f"{layout}-4d", (2, 3, 4, 65), input=TensorSpec(shape=(2, 3, 4, 65), layout=layout))
    yield case("no-weight", (6, 48), weight=None)
    yield case("no-weight-offset", (6, 48), weight=None, offset=0.5)
    yield case("weight-float32", (6, 48), weight=TensorSpec(shape=(48,), dtype=torch.float32))
    yield case("bias", (6, 48), bias=TensorSpec(shape=(48,)))
    yield case("offset", (6, 48), offset=1.0)
    yield case("weight-strided", (6, 48), weight=TensorSpec(shape=(48,), layout="strided"))
    yield case("eps", (6, 48), eps=0.5)
    yield case("two-dims", (5, 6, 20), dims=2)
    yield case("none-shape", (5, 20), normalized_shape=None)
    yield case("special", (8, 33), input=TensorSpec(shape=(8, 33), fill="special"))
    yield case("large", (8, 300), input=TensorSpec(shape=(8, 300), fill="large"))


rms_norm.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, normalized_shape, *_: math.prod(normalized_shape),
    fake=_norms.fake,
    samples=samples,
    benchmarks=functools.partial(_norms.benchmarks, parameters=("weight",)),
    bytes_moved=lambda input, _, weight, eps, bias=None, *_more: _norms.bytes_moved(input, weight, bias),
    flops=lambda input, *_: 4 * input.numel(),
    gradient=Gradient(
        inputs=("input", "weight", "bias"),
        magnitude=gradient_magnitude,
        saved=("input", "weight", "bias", "rstd"),
        like=("input", "weight", "bias"),
        residual_names=("rstd",),
        residuals=fake_rstd,
    ),
    sharding=rows("input", within=lambda input, normalized_shape, *_: len(normalized_shape)),
    hints={"mode": (None, "static_persistent", "multi_wave_reload", "multi_wave_cached")},
)
