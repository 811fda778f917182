"""persistent_layer_norm."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_beside, check_no_gradient
from tilegym.errors import ArgumentValueError
from tilegym.op import dispatch
from tilegym.sharding import rows
from tilegym.specs import _norms


@dispatch("persistent_layer_norm")
def persistent_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor, Tensor, int, int]:
    """Layer norm with its statistics, as `torch.native_layer_norm`; statistics that are given are used.

    Args:
        input: (..., *normalized_shape), float32, float16 or bfloat16, any strides.
        normalized_shape: the trailing dimensions that mean and variance are over; an int or None means the last one.
        weight: (*normalized_shape), float32, float16 or bfloat16, on input's device; None: 1.
        bias: (*normalized_shape), as weight; None: 0.
        eps: added to the variance; not negative.
        mean: (...), float32: the mean of each row; None: computed.
        rstd: (...), float32: 1 / the standard deviation of each row; given with mean, or not at all.
        **kwargs: options of the backend.

    Returns:
        The norm, of input's shape and dtype, contiguous; mean and rstd of each row: (...), float32; BLOCK_D, the next
        power of two of a row's length; and num_warps, 8. Computed in float32, the norm rounded once. The statistics of
        a row without elements are 0, those of a row that holds NaN or an infinity are NaN.

    Raises:
        ShapeError: normalized_shape is not how input's shape ends; another tensor has another shape.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: eps is negative or NaN; one of mean and rstd is given without the other.
        GradientError: mean or rstd requires a gradient.

    Gradient: input, weight, bias, of the norm; mean and rstd, returned or given, have none.

    Source: Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """
    raise NotImplementedError


NUM_WARPS = 8


def canonical(
    input: Tensor,
    normalized_shape: Sequence[int] | int | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, tuple[int, ...], Tensor | None, Tensor | None, float, Tensor | None, Tensor | None]:
    op = "persistent_layer_norm"
    shape = _norms.checked_shape(op, input, normalized_shape)
    _norms.check_affine(op, input, shape, weight=weight, bias=bias)
    _norms.check_eps(op, eps)
    if mean is not None and rstd is not None:
        for name, value in (("mean", mean), ("rstd", rstd)):
            leading = input.shape[: input.dim() - len(shape)]
            check_beside(op, name, value, input, "input", shape=leading, dtypes=(torch.float32,))
            check_no_gradient(op, name, value)
    elif mean is not None or rstd is not None:
        raise ArgumentValueError(f"{op}: mean and rstd must be given together, got one without the other")
    return input, shape, weight, bias, eps, mean, rstd


def reference(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if mean is None or rstd is None:
        columns = _norms.columns_of(normalized_shape)
        rstd = _norms.centered(input, normalized_shape, eps)[1].squeeze(columns)
        mean = input.mean(columns) + 0 * rstd
        if 0 in normalized_shape:
            mean, rstd = torch.zeros_like(mean), torch.zeros_like(rstd)
    kept = (*mean.shape, *[1] * len(normalized_shape))
    y = _norms.affine((input - mean.reshape(kept)) * rstd.reshape(kept), weight, bias, 0.0)
    return y, mean, rstd


def magnitude(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    weight, bias = (None if tensor is None else tensor.abs() for tensor in (weight, bias))
    if mean is not None and rstd is not None:
        return reference(input.abs(), normalized_shape, weight, bias, eps, -mean.abs(), rstd.abs())
    if 0 in normalized_shape:
        return reference(input, normalized_shape, weight, bias, eps)
    columns = _norms.columns_of(normalized_shape)
    centered, rstd = _norms.centered(input, normalized_shape, eps)
    uncentered = _norms.uncentered(input, normalized_shape)
    spread = rstd + rstd**3 * (centered.abs() * uncentered).mean(columns, keepdim=True)
    y = _norms.affine(uncentered * rstd, weight, bias, 0.0)
    return y, input.abs().mean(columns), spread.squeeze(columns)


def gradient_magnitude(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, ...]:
    scaled = grad_output if weight is None else grad_output * weight.abs()
    if mean is None or rstd is None:
        return _norms.centered_gradient_magnitude(grad_output, scaled, input, normalized_shape, eps)
    normed, _, _ = magnitude(input, normalized_shape, None, None, eps, mean, rstd)
    return (
        scaled * rstd.abs().reshape(*rstd.shape, *[1] * len(normalized_shape)),
        _norms.sum_over_rows(grad_output * normed, normalized_shape),
        _norms.sum_over_rows(grad_output, normalized_shape),
    )


def fake(input: Tensor, normalized_shape: tuple[int, ...], *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean, rstd = (_norms.fake_statistic(input, normalized_shape) for _ in range(2))
    return _norms.fake(input), mean, rstd


def dressed(
    result: tuple[Tensor, Tensor, Tensor], input: Tensor, normalized_shape: tuple[int, ...], *_: Any
) -> tuple[Tensor, Tensor, Tensor, int, int]:
    return *result, 1 << max(0, math.prod(normalized_shape) - 1).bit_length(), NUM_WARPS


def samples() -> Iterator[Sample]:
    case = functools.partial(_norms.sample, parameters=("weight", "bias"))
    for shape in [(0, 8), (3, 0), (1,), (5, 257), (1, 8192), (1, 20001)]:
        yield case(f"input{shape}", shape)

    def given(*shape: int) -> dict[str, Any]:
        return {
            "mean": TensorSpec(shape=shape, dtype=torch.float32),
            "rstd": TensorSpec(shape=shape, dtype=torch.float32, fill="positive"),
        }

    yield case("given", (7, 48), **given(7))
    for shape in [(0, 8), (3, 0), (1, 20001)]:
        yield case(f"given{shape}", shape, **given(*shape[:1]))
    transposed = TensorSpec(shape=(2, 3, 4, 65), layout="transposed")
    yield case("transposed-4d", (2, 3, 4, 65), input=transposed)
    yield case("given-two-dims", (2, 3, 4, 65), dims=2, input=transposed, bias=None, **given(2, 3))
    yield case("neither", (6, 48), weight=None, bias=None, input=TensorSpec(shape=(6, 48), layout="strided"))
    yield case("weight-float32", (6, 48), weight=TensorSpec(shape=(48,), dtype=torch.float32, layout="strided"))
    yield case("special", (8, 33), input=TensorSpec(shape=(8, 33), fill="special", layout="strided"))
    yield case("offset", (8, 300), input=TensorSpec(shape=(8, 300), fill="offset", layout="sliced"))


persistent_layer_norm.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, normalized_shape, *_: math.prod(normalized_shape),
    fake=fake,
    samples=samples,
    benchmarks=functools.partial(_norms.benchmarks, parameters=("weight", "bias")),
    bytes_moved=lambda input, _, weight, bias, *_more: _norms.bytes_moved(input, weight, bias),
    flops=lambda input, *_: 7 * input.numel(),
    outputs=("output", "row_mean", "row_rstd"),
    gradient=Gradient(
        inputs=("input", "weight", "bias"),
        outputs=("output",),
        magnitude=gradient_magnitude,
        saved=("input", "weight", "bias", "mean", "row_mean", "row_rstd"),
        like=("input", "weight", "bias"),
    ),
    dressed=dressed,
    sharding=rows("input", "mean", "rstd", within=lambda input, normalized_shape, *_: len(normalized_shape)),
)
