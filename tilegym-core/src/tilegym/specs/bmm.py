"""bmm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, Way, check_flag
from tilegym.op import dispatch
from tilegym.specs import _products
from tilegym.specs._products import sizes, turned


@dispatch("bmm")
def bmm(
    a: Tensor,
    b: Tensor,
    transpose_a: bool | None = None,
    transpose_b: bool | None = None,
    static_persistent: bool = True,
    **kwargs: Any,
) -> Tensor:
    """Matrix products of a batch, `torch.bmm(a, b)`.

    Args:
        a: (B, M, K), float32, float16, bfloat16, float8_e4m3fn or float8_e5m2, any strides; (B, K, M) with
            `transpose_a`.
        b: (B, K, N), a's dtype and device, any strides; (B, N, K) with `transpose_b`.
        transpose_a: whether the matrices of a are given transposed.
        transpose_b: whether those of b are.
        static_persistent: hint: as many blocks as the device runs at once, which walk over the tiles.
        **kwargs: `out_dtype` (a's), the result's dtype; options of the backend.

    Returns:
        Tensor (B, M, N), contiguous; zeros where K is 0. Added up in float32, of float8 as tensor cores do (an H200's
        to 14 bits at a time), and rounded once, to float8 with saturation. Operands of float32 are multiplied as tf32
        where PyTorch allows its own to be (`fp32_precision`).

    Raises:
        ShapeError: a or b has not three dimensions, or they do not fit.
        DtypeError, DeviceError: b has another dtype or device.
        ArgumentTypeError: an argument is of another type.
        ArgumentValueError: out_dtype is unknown.

    Gradient: a, b.
    """
    raise NotImplementedError


def canonical(
    a: Tensor,
    b: Tensor,
    transpose_a: bool | None = None,
    transpose_b: bool | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[Any, ...]:
    _products.check_operand("bmm", "a", a, 3)
    _products.check_operand("bmm", "b", b, 3, dtypes=(a.dtype,))
    transpose_a = check_flag("bmm", "transpose_a", transpose_a)
    transpose_b = check_flag("bmm", "transpose_b", transpose_b)
    _products.check_fit("bmm", ("a", "b"), a, b, transpose_a, transpose_b)
    out_dtype = _products.checked_out_dtype("bmm", a.dtype, out_dtype)
    return a, b, transpose_a, transpose_b, out_dtype, _products.multiplies_in_tf32(a.dtype)


def reference(
    a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> Tensor:
    return _products.saturated(turned(a, transpose_a) @ turned(b, transpose_b), out_dtype)


def magnitude(
    a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, out_dtype: torch.dtype | None, tf32: bool
) -> Tensor:
    return turned(a, transpose_a).abs() @ turned(b, transpose_b).abs()


def gradient_magnitude(
    grad_output: Tensor, a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, *_: Any
) -> tuple[Tensor, Tensor]:
    return _products.gradients(grad_output, a.abs(), b.abs(), transpose_a, transpose_b)


def reduction_of_gradients(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, *_: Any) -> tuple[int, int]:
    m, n, _k = sizes(a, b, transpose_a, transpose_b)
    return n, m


def sharding(a: Tensor, b: Tensor, transpose_a: bool, transpose_b: bool, *_: Any) -> Iterator[Way]:
    of_m, of_n = (2 if transpose_a else 1), (1 if transpose_b else 2)
    yield {"a": 0, "b": 0, "output": 0}
    yield {"a": of_m, "output": 1}
    yield {"b": of_n, "output": 2}
    yield {"a": 3 - of_m, "b": 3 - of_n, "output": "sum"}


def _sample(name: str, batch: int, m: int, n: int, k: int, layout: Any = "contiguous", **more: Any) -> Sample:
    args: dict[str, Any] = {
        "a": TensorSpec(shape=(batch, k, m) if more.get("transpose_a") else (batch, m, k), layout=layout),
        "b": TensorSpec(shape=(batch, n, k) if more.get("transpose_b") else (batch, k, n), layout=layout),
    }
    return Sample(name=name, args=args | more)


def samples() -> Iterator[Sample]:
    for batch, m, n, k in [(0, 3, 4, 5), (2, 3, 4, 0), (2, 17, 33, 9), (3, 130, 264, 72)]:
        yield _sample(f"{batch}x{m}x{n}x{k}", batch, m, n, k)
    yield _sample("transpose_a", 2, 24, 40, 32, "sliced", transpose_a=True)
    yield _sample("transpose_b", 2, 130, 70, 161, transpose_b=True)
    yield _sample("transpose_ab", 2, 24, 40, 32, "transposed", transpose_a=True, transpose_b=True)
    yield _sample("few-rows", 2, 1, 136, 520)
    yield _sample("out_dtype", 2, 9, 72, 33, "strided", out_dtype=torch.float32)


def benchmarks() -> Iterator[Sample]:
    """Squares, and the two products of attention."""
    for batch, m, n, k in [(2, 128, 128, 128), (4, 256, 256, 256), (16, 1024, 1024, 1024), (16, 2048, 2048, 2048)]:
        yield _sample(f"{batch}x{m}x{n}x{k}", batch, m, n, k)
    yield _sample("128x1024x1024x128-transpose_b", 128, 1024, 1024, 128, transpose_b=True)
    yield _sample("128x1024x128x1024", 128, 1024, 128, 1024)


bmm.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda a, b, transpose_a, *_: a.shape[-2 if transpose_a else -1],
    fake=_products.fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda a, b, transpose_a, transpose_b, out_dtype, _: _products.bytes_moved(
        a, b, transpose_a, transpose_b, out_dtype
    ),
    flops=_products.flops,
    dtypes=_products.DTYPES,
    gradient=Gradient(
        inputs=("a", "b"),
        magnitude=gradient_magnitude,
        reduction=reduction_of_gradients,
        saved=("a", "b"),
        like=("a", "b"),
        dense=True,
    ),
    sharding=sharding,
    hints={"static_persistent": (None, False, True)},
)
