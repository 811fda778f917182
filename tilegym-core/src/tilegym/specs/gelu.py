"""gelu."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_tensor
from tilegym.op import dispatch
from tilegym.sharding import rows
from tilegym.specs import _activations
from tilegym.specs._activations import check_approximate


@dispatch("gelu")
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: `torch.nn.functional.gelu(input, approximate=approximate)`.

    "none": `input / 2 * (1 + torch.erf(input / 2**0.5))`;
    "tanh": `input / 2 * (1 + torch.tanh((2 / pi)**0.5 * (input + 0.044715 * input**3)))`.

    Args:
        input: any shape, float32, float16 or bfloat16, any strides.
        approximate: "none" or "tanh".

    Returns:
        Tensor of input's shape and dtype, with the strides of `torch.empty_like(input)`. Computed in float32 and
        rounded once. -inf gives NaN, as in torch.

    Raises:
        DtypeError: input has another dtype.
        ArgumentValueError: approximate is something else.

    Gradient: input.

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)", 2016.
    """
    raise NotImplementedError


def canonical(input: Tensor, approximate: str = "none") -> tuple[Tensor, str]:
    check_tensor("gelu", "input", input)
    check_approximate("gelu", approximate)
    return input, approximate


def reference(input: Tensor, approximate: str = "none") -> Tensor:
    return _activations.gelu(input, approximate)


def magnitude(input: Tensor, approximate: str = "none") -> Tensor:
    return _activations.gelu(input.abs(), approximate)


def gradient_magnitude(grad_output: Tensor, input: Tensor, approximate: str = "none") -> tuple[Tensor]:
    return (grad_output * _activations.gelu_slope(input.abs(), approximate),)


def samples() -> Iterator[Sample]:
    for shape in [(), (0, 8), (6, 33), (2, 3, 4, 65), (3, 5000)]:
        yield Sample(name=f"input{shape}", args={"input": TensorSpec(shape=shape)})
    yield Sample(name="tanh", args={"input": TensorSpec(shape=(6, 34)), "approximate": "tanh"})
    for approximate in ("none", "tanh"):
        for fill in ("special", "large"):
            args = {"input": TensorSpec(shape=(8, 600), fill=fill), "approximate": approximate}
            yield Sample(name=f"{fill}-{approximate}", args=args)


def benchmarks() -> Iterator[Sample]:
    for m, n in [(256, 1024), (1024, 1024), (4096, 1024), (4096, 4096), (8192, 28672)]:
        yield Sample(name=f"{m}x{n}", args={"input": TensorSpec(shape=(m, n))})


gelu.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda input, approximate="none": 1,
    fake=lambda input, approximate="none": torch.empty_like(input),
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda input, approximate="none": 2 * input.numel() * input.element_size(),
    flops=lambda input, approximate="none": 5 * input.numel(),
    sharding=rows("input", within=0),
    gradient=Gradient(inputs=("input",), magnitude=gradient_magnitude, saved=("input",), like=("input",), dense=True),
)
