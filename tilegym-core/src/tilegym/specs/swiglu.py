"""swiglu."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, check_beside, check_tensor
from tilegym.op import dispatch
from tilegym.sharding import rows


@dispatch("swiglu")
def swiglu(a: Tensor, b: Tensor) -> Tensor:
    """Gated SiLU of two tensors: `torch.nn.functional.silu(a) * b`.

    Args:
        a: any shape, float32, float16 or bfloat16, any strides.
        b: a's shape, dtype and device, any strides.

    Returns:
        Tensor of a's shape and dtype, contiguous. Computed in float32 and rounded once.

    Raises:
        ShapeError: b has another shape.
        DtypeError: a has another dtype; b has another dtype than a.
        DeviceError: b is on another device.

    Gradient: a, b.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020 (SwiGLU without the projections).
    """
    raise NotImplementedError


def canonical(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    check_tensor("swiglu", "a", a)
    check_beside("swiglu", "b", b, a, "a", shape=a.shape, dtypes=(a.dtype,))
    return a, b


def reference(a: Tensor, b: Tensor) -> Tensor:
    return a / (1 + torch.exp(-a)) * b


def gradient_magnitude(grad_output: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    gate = a.abs()
    sigmoid = 1 / (1 + torch.exp(-gate))
    return grad_output * b.abs() * (sigmoid + gate * sigmoid), grad_output * gate * sigmoid


def samples() -> Iterator[Sample]:
    def case(name: str, a: TensorSpec, b: TensorSpec | None = None) -> Sample:
        return Sample(name=name, args={"a": a, "b": b or a})

    for shape in [(), (0, 8), (3, 0), (1,), (6, 33), (2, 3, 4, 65), (3, 5000)]:
        yield case(f"a{shape}", TensorSpec(shape=shape))
    yield case("mixed", TensorSpec(shape=(6, 34), layout="transposed"), TensorSpec(shape=(6, 34), layout="sliced"))
    for fill in ("special", "large"):
        yield case(fill, TensorSpec(shape=(8, 600), fill=fill))


def benchmarks() -> Iterator[Sample]:
    for m, n in [(256, 1024), (512, 1024), (4096, 1024), (4096, 4096), (8192, 14336)]:
        spec = TensorSpec(shape=(m, n))
        yield Sample(name=f"{m}x{n}", args={"a": spec, "b": spec})


swiglu.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=lambda a, b: reference(a.abs(), b.abs()),
    reduction=lambda a, b: 1,
    fake=lambda a, b: torch.empty(a.shape, dtype=a.dtype, device=a.device),
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda a, b: 3 * a.numel() * a.element_size(),
    flops=lambda a, b: 5 * a.numel(),
    sharding=rows("a", "b", within=0),
    gradient=Gradient(inputs=("a", "b"), magnitude=gradient_magnitude, saved=("a", "b"), like=("a", "b")),
)
