"""layer_norm_legacy."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Layout, Sample, TensorSpec, check_number
from tilegym.op import dispatch
from tilegym.sharding import rows
from tilegym.specs import _norms


@dispatch("layer_norm_legacy")
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
    **kwargs: Any,
) -> Tensor:
    """Layer norm: `torch.nn.functional.layer_norm(input, normalized_shape, weight + weight_shift, bias, eps)`.

    Args:
        input: (..., *normalized_shape), float32, float16 or bfloat16, any strides.
        normalized_shape: the trailing dimensions that mean and variance are over; an int or None means the last one.
        weight: (*normalized_shape), float32, float16 or bfloat16, on input's device; None: 1.
        bias: (*normalized_shape), as weight; None: 0.
        eps: added to the variance; not negative.
        weight_shift: added to weight, in float32.
        **kwargs: options of the backend.

    Returns:
        Tensor of input's shape and dtype, contiguous. Computed in float32 and rounded once; a mean that is large beside
        the deviations from it costs no precision.

    Raises:
        ShapeError: normalized_shape is not how input's shape ends; weight or bias has another shape.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: eps is negative or NaN.

    Gradient: input, weight, bias.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    raise NotImplementedError


def canonical(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> tuple[Tensor, tuple[int, ...], Tensor | None, Tensor | None, float, float]:
    shape = _norms.checked_shape("layer_norm_legacy", input, normalized_shape)
    _norms.check_affine("layer_norm_legacy", input, shape, weight=weight, bias=bias)
    _norms.check_eps("layer_norm_legacy", eps)
    check_number("layer_norm_legacy", "weight_shift", weight_shift)
    return input, shape, weight, bias, eps, weight_shift


def reference(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> Tensor:
    centered, rstd = _norms.centered(input, normalized_shape, eps)
    return _norms.affine(centered * rstd, weight, bias, weight_shift)


def magnitude(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> Tensor:
    _, rstd = _norms.centered(input, normalized_shape, eps)
    weight, bias = (None if tensor is None else tensor.abs() for tensor in (weight, bias))
    return _norms.affine(_norms.uncentered(input, normalized_shape) * rstd, weight, bias, abs(weight_shift))


def gradient_magnitude(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> tuple[Tensor, ...]:
    scaled = _norms.affine(grad_output, None if weight is None else weight.abs(), None, abs(weight_shift))
    return _norms.centered_gradient_magnitude(grad_output, scaled, input, normalized_shape, eps)


def fake_statistics(input: Tensor, normalized_shape: tuple[int, ...], *_: Any) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of each row, float32."""
    return _norms.fake_statistic(input, normalized_shape), _norms.fake_statistic(input, normalized_shape)


def samples() -> Iterator[Sample]:
    case = functools.partial(_norms.sample, parameters=("weight", "bias"))
    for shape in [(0, 8), (3, 0), (1,), (4, 1), (5, 257), (2, 3, 1009), (16, 1024), (1, 8192), (1, 20001)]:
        yield case(f"input{shape}", shape)
    yield case("two-dims", (5, 6, 20), dims=2)
    yield case("weight-shift", (6, 48), weight_shift=1.0)

    def laid_out(layout: Layout, **more: Any) -> dict[str, Any]:
        return {"input": TensorSpec(shape=(6, 48), layout=layout), **more}

    yield case("no-weight", (6, 48), **laid_out("sliced", weight=None, weight_shift=0.5))
    yield case("no-bias", (6, 48), **laid_out("transposed", bias=None))
    yield case("neither", (6, 48), **laid_out("strided", weight=None, bias=None))
    yield case("weight-float32", (6, 48), **laid_out("expanded", weight=TensorSpec(shape=(48,), dtype=torch.float32)))
    yield case("bias-strided", (6, 48), bias=TensorSpec(shape=(48,), layout="strided"))
    yield case("eps", (6, 48), **laid_out("transposed", eps=0.5))
    yield case("none-shape", (6, 48), **laid_out("sliced", normalized_shape=None))
    yield case("transposed-4d", (2, 3, 4, 65), input=TensorSpec(shape=(2, 3, 4, 65), layout="transposed"))
    yield case("special", (8, 33), input=TensorSpec(shape=(8, 33), fill="special", layout="strided"))
    yield case("large", (8, 300), input=TensorSpec(shape=(8, 300), fill="large", layout="transposed"))
    yield case("offset", (8, 300), input=TensorSpec(shape=(8, 300), fill="offset", layout="sliced"))
    yield case("offset-long", (1, 20001), input=TensorSpec(shape=(1, 20001), fill="offset"))


layer_norm_legacy.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, normalized_shape, *_: math.prod(normalized_shape),
    fake=_norms.fake,
    samples=samples,
    benchmarks=functools.partial(_norms.benchmarks, parameters=("weight", "bias")),
    bytes_moved=lambda input, _, weight, bias, *_more: _norms.bytes_moved(input, weight, bias),
    flops=lambda input, *_: 7 * input.numel(),
    sharding=rows("input", within=lambda input, normalized_shape, *_: len(normalized_shape)),
    gradient=Gradient(
        inputs=("input", "weight", "bias"),
        magnitude=gradient_magnitude,
        saved=("input", "weight", "bias", "mean", "rstd"),
        like=("input", "weight", "bias"),
        residual_names=("mean", "rstd"),
        residuals=fake_statistics,
    ),
)
