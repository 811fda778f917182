"""rms_norm."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_beside, check_rank, check_tensor
from tilegym.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from tilegym.op import dispatch
from tilegym.sharding import rows


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
    check_tensor("rms_norm", "input", input)
    check_rank("rms_norm", "input", input, 1)
    if normalized_shape is None:
        shape: tuple[int, ...] = (input.shape[-1],)
    elif isinstance(normalized_shape, (int, torch.SymInt)):
        shape = (normalized_shape,)
    elif isinstance(normalized_shape, (tuple, list)) and all(
        isinstance(size, (int, torch.SymInt)) for size in normalized_shape
    ):
        shape = tuple(normalized_shape)
    else:
        raise ArgumentTypeError(f"rms_norm: normalized_shape must be ints, an int or None, got {normalized_shape!r}")
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ShapeError(f"rms_norm: normalized_shape {shape} is not how input's shape {tuple(input.shape)} ends")
    if not isinstance(eps, (int, float)):
        raise ArgumentTypeError(f"rms_norm: eps must be a number, got {type(eps).__name__}")
    if not eps >= 0:
        raise ArgumentValueError(f"rms_norm: eps must not be negative, got {eps}")
    if not isinstance(offset, (int, float)):
        raise ArgumentTypeError(f"rms_norm: offset must be a number, got {type(offset).__name__}")
    if weight is not None:
        check_beside("rms_norm", "weight", weight, input, "input", shape=shape)
    if bias is not None:
        check_beside("rms_norm", "bias", bias, input, "input", shape=shape)
    return input, shape, weight, eps, bias, offset


def _scaled(input: Tensor, shape: tuple[int, ...], weight: Tensor | None, eps: float, offset: float) -> Tensor:
    dims = tuple(range(-len(shape), 0))
    scaled = input / torch.sqrt(input.square().mean(dims, keepdim=True) + eps)
    return scaled * (offset + (1 if weight is None else weight))


def reference(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    scaled = _scaled(input, normalized_shape, weight, eps, offset)
    return scaled if bias is None else scaled + bias


def magnitude(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> Tensor:
    scaled = _scaled(input.abs(), normalized_shape, None if weight is None else weight.abs(), eps, abs(offset))
    return scaled if bias is None else scaled + bias.abs()


def gradient_magnitude(
    grad_output: Tensor,
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,
) -> tuple[Tensor, ...]:
    columns = len(normalized_shape)
    dims = tuple(range(-columns, 0))
    rows = tuple(range(input.dim() - columns))
    rstd = 1 / torch.sqrt(input.square().mean(dims, keepdim=True) + eps)
    normed = input.abs() * rstd
    scaled = grad_output * (abs(offset) + (1 if weight is None else weight.abs()))
    grad_input = rstd * (scaled + normed * (scaled * normed).mean(dims, keepdim=True))
    if not rows:
        return grad_input, grad_output * normed, grad_output
    return grad_input, (grad_output * normed).sum(rows), grad_output.sum(rows)


def fake(input: Tensor, *_: Any) -> Tensor:
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


def fake_rstd(input: Tensor, normalized_shape: tuple[int, ...], *_: Any) -> tuple[Tensor]:
    """1 / root mean square of each row, float32."""
    shape = input.shape[: input.dim() - len(normalized_shape)]
    return (torch.empty(shape, dtype=torch.float32, device=input.device),)


def bytes_moved(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, *_: Any) -> int:
    weights = 0 if weight is None else weight.numel()
    return (2 * input.numel() + weights) * input.element_size()


def samples() -> Iterator[Sample]:
    def case(name: str, shape: tuple[int, ...], *, dims: int = 1, **more: Any) -> Sample:
        tail = shape[len(shape) - dims :]
        args: dict[str, Any] = {
            "input": more.pop("input", TensorSpec(shape=shape)),
            "normalized_shape": tail,
            "weight": TensorSpec(shape=tail),
            "eps": 1e-6,
        }
        return Sample(name=name, args=args | more)

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


def benchmarks() -> Iterator[Sample]:
    small = [(256, 1024), (512, 1024), (4096, 1024), (4096, 4096)]
    for m, n in [*small, (32768, 1024), (16384, 4096), (8192, 8192)]:
        args = {
            "input": TensorSpec(shape=(m, n)),
            "normalized_shape": (n,),
            "weight": TensorSpec(shape=(n,)),
            "eps": 1e-6,
        }
        yield Sample(name=f"{m}x{n}", args=args)


rms_norm.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, normalized_shape, *_: math.prod(normalized_shape),
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
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
