"""What the contracts of norms over the last dimensions have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Sample, TensorSpec, check_beside, check_number, check_tensor
from tilegym.errors import ArgumentTypeError, ArgumentValueError, ShapeError


def checked_shape(op: str, input: Tensor, normalized_shape: Sequence[int] | int | None) -> tuple[int, ...]:
    """The dimensions that a norm is over, which must be the last of `input`; None and an int mean the last one."""
    check_tensor(op, "input", input, least_rank=1)
    if normalized_shape is None:
        shape: tuple[int, ...] = (input.shape[-1],)
    elif isinstance(normalized_shape, (int, torch.SymInt)):
        shape = (normalized_shape,)
    elif isinstance(normalized_shape, (tuple, list)) and all(
        isinstance(size, (int, torch.SymInt)) for size in normalized_shape
    ):
        shape = tuple(normalized_shape)
    else:
        raise ArgumentTypeError(f"{op}: normalized_shape must be ints, an int or None, got {normalized_shape!r}")
    if not shape or tuple(input.shape[-len(shape) :]) != shape:
        raise ShapeError(f"{op}: normalized_shape {shape} is not how input's shape {tuple(input.shape)} ends")
    return shape


def check_eps(op: str, eps: float) -> None:
    """`eps` must be a number and not negative."""
    check_number(op, "eps", eps)
    if not eps >= 0:
        raise ArgumentValueError(f"{op}: eps must not be negative, got {eps}")


def check_affine(op: str, input: Tensor, shape: tuple[int, ...], **parameters: Tensor | None) -> None:
    """Weight and bias, where given, must be of the normalised shape and on the device of `input`."""
    for name, value in parameters.items():
        if value is not None:
            check_beside(op, name, value, input, "input", shape=shape)


def affine(normed: Tensor, weight: Tensor | None, bias: Tensor | None, offset: float) -> Tensor:
    """`normed * (offset + weight) + bias`, where no weight counts as 1 and no bias as 0."""
    scaled = normed * (offset + (1 if weight is None else weight))
    return scaled if bias is None else scaled + bias


def centered(input: Tensor, normalized_shape: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    """What is left of each row without its mean, and 1 / its standard deviation."""
    columns = columns_of(normalized_shape)
    rest = input - input.mean(columns, keepdim=True)
    return rest, 1 / torch.sqrt(rest.square().mean(columns, keepdim=True) + eps)


def uncentered(input: Tensor, normalized_shape: tuple[int, ...]) -> Tensor:
    """The first of `centered` on absolute values."""
    return input.abs() + input.abs().mean(columns_of(normalized_shape), keepdim=True)


def centered_gradient_magnitude(
    grad_output: Tensor, scaled: Tensor, input: Tensor, normalized_shape: tuple[int, ...], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of layer norm on absolute values; scaled: grad_output times the weight.

    A product of two normed values errs as much as each does, times the other's true size.
    """
    columns = columns_of(normalized_shape)
    rest, rstd = centered(input, normalized_shape, eps)
    true, normed = rest.abs() * rstd, uncentered(input, normalized_shape) * rstd
    slope = true * (scaled * normed).mean(columns, keepdim=True) + normed * (scaled * true).mean(columns, keepdim=True)
    return (
        rstd * (scaled + scaled.mean(columns, keepdim=True) + slope),
        sum_over_rows(grad_output * normed, normalized_shape),
        sum_over_rows(grad_output, normalized_shape),
    )


def columns_of(normalized_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions that a norm is over."""
    return tuple(range(-len(normalized_shape), 0))


def sum_over_rows(tensor: Tensor, normalized_shape: tuple[int, ...]) -> Tensor:
    """The sum over the other dimensions."""
    rows = tuple(range(tensor.dim() - len(normalized_shape)))
    return tensor.sum(rows) if rows else tensor


def bytes_moved(input: Tensor, *parameters: Tensor | None) -> int:
    """Of input and result, in input's dtype, and of the parameters given."""
    read = sum(one.numel() * one.element_size() for one in parameters if one is not None)
    return 2 * input.numel() * input.element_size() + read


def fake(input: Tensor, *_: Any) -> Tensor:
    """An empty result of input's shape and dtype, contiguous."""
    return torch.empty(input.shape, dtype=input.dtype, device=input.device)


def fake_statistic(input: Tensor, normalized_shape: tuple[int, ...]) -> Tensor:
    """One float32 for each row, uninitialised."""
    shape = input.shape[: input.dim() - len(normalized_shape)]
    return torch.empty(shape, dtype=torch.float32, device=input.device)


def sample(name: str, shape: tuple[int, ...], *, dims: int = 1, parameters: tuple[str, ...], **more: Any) -> Sample:
    """A case of a norm over the last `dims` of `shape`, with tensors for `parameters`; `more` replaces arguments."""
    tail = shape[len(shape) - dims :]
    args: dict[str, Any] = {"input": TensorSpec(shape=shape), "normalized_shape": tail, "eps": 1e-6}
    args |= {parameter: TensorSpec(shape=tail) for parameter in parameters}
    return Sample(name=name, args=args | more)


def benchmarks(parameters: tuple[str, ...]) -> Iterator[Sample]:
    """The cases that are timed."""
    small = [(256, 1024), (512, 1024), (4096, 1024), (4096, 4096)]
    for m, n in [*small, (32768, 1024), (16384, 4096), (8192, 8192)]:
        yield sample(f"{m}x{n}", (m, n), parameters=parameters)
