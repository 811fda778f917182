"""matmul."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from tilegym.contract import FLOAT8, Contract, Gradient, Sample, TensorSpec, Way, check_beside, check_flag
from tilegym.errors import ArgumentValueError
from tilegym.op import dispatch
from tilegym.specs import _products
from tilegym.specs._activations import gelu
from tilegym.specs._products import sizes, turned

_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": torch.relu,
    "gelu": lambda x: gelu(x, "none"),
    "gelu_tanh": lambda x: gelu(x, "tanh"),
    "silu": lambda x: x * torch.sigmoid(x),
}
_ACTIVATION: Final = 8
"""The activation's place in the canonical arguments."""
_STEEPEST: Final = 1.13
"""No activation has a larger slope; nor does any slope change faster than its argument."""


@dispatch("matmul")
def matmul(
    a: Tensor,
    b: Tensor,
    trans_a: bool | None = None,
    trans_b: bool | None = None,
    static_persistent: bool = True,
    use_tma: bool | None = None,
    **kwargs: Any,
) -> Tensor:
    """Matrix product, `a @ b`, and what often follows: `activation(scale_a * scale_b * a @ b + bias) + residual`.

    Args:
        a: (M, K), float32, float16, bfloat16, float8_e4m3fn or float8_e5m2, any strides; (K, M) with `trans_a`.
        b: (K, N), a's dtype and device, any strides; (N, K) with `trans_b`.
        trans_a: whether a is given transposed.
        trans_b: whether b is given transposed.
        static_persistent: hint: as many blocks as the device runs at once, which walk over the tiles.
        use_tma: hint: load tiles by the tensor memory accelerator; None: where it can.
        **kwargs: `out_dtype` (a's), the result's dtype; `scale_a` and `scale_b`, float32 tensors of one element, by
            which float8 operands are to be multiplied; `bias` (N,); `activation`, "relu", "gelu", "gelu_tanh" or
            "silu"; `residual` (M, N), of the result's dtype; options of the backend.

    Returns:
        Tensor (M, N), contiguous; zeros where K is 0. Added up in float32, of float8 as tensor cores do (an H200's to
        14 bits at a time), and rounded once, to float8 with saturation. Operands of float32 are multiplied as tf32
        where PyTorch allows its own to be (`fp32_precision`).

    Raises:
        ShapeError: a or b is no matrix, or they do not fit; another argument has another shape.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError: an argument is of another type.
        ArgumentValueError: activation or out_dtype is unknown.

    Gradient: a, b, bias, residual. Of an activation's, what it is multiplied by may be rounded to the result's dtype.
    """
    raise NotImplementedError


def canonical(
    a: Tensor,
    b: Tensor,
    trans_a: bool | None = None,
    trans_b: bool | None = None,
    out_dtype: torch.dtype | None = None,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
) -> tuple[Any, ...]:
    _products.check_operand("matmul", "a", a, 2)
    _products.check_operand("matmul", "b", b, 2, dtypes=(a.dtype,))
    trans_a = check_flag("matmul", "trans_a", trans_a)
    trans_b = check_flag("matmul", "trans_b", trans_b)
    _products.check_fit("matmul", ("a", "b"), a, b, trans_a, trans_b)
    out_dtype = _products.checked_out_dtype("matmul", a.dtype, out_dtype)
    for name, scale in (("scale_a", scale_a), ("scale_b", scale_b)):
        if scale is not None:
            shape = (1,) * scale.dim() if isinstance(scale, torch.Tensor) else ()
            check_beside("matmul", name, scale, a, "a", shape=shape, dtypes=(torch.float32,))
    m, n, _ = sizes(a, b, trans_a, trans_b)
    if bias is not None:
        check_beside("matmul", "bias", bias, a, "a", shape=(n,))
    if activation not in (None, *_ACTIVATIONS):
        accepted = ", ".join(map(repr, _ACTIVATIONS))
        raise ArgumentValueError(f"matmul: activation must be None or one of {accepted}, got {activation!r}")
    if residual is not None:
        check_beside("matmul", "residual", residual, a, "a", shape=(m, n), dtypes=(out_dtype or a.dtype,))
    tf32 = _products.multiplies_in_tf32(a.dtype)
    return a, b, trans_a, trans_b, out_dtype, scale_a, scale_b, bias, activation, residual, tf32


def reference(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,
) -> Tensor:
    product = turned(a, trans_a) @ turned(b, trans_b)
    for scale in (scale_a, scale_b):
        product = product if scale is None else product * scale.reshape(())
    if bias is not None:
        product = product + bias
    if activation is not None:
        product = _ACTIVATIONS[activation](product)
    if residual is not None:
        product = product + residual
    return _products.saturated(product, out_dtype)


def magnitude(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,
) -> Tensor:
    scale_a, scale_b, bias = (None if one is None else one.abs() for one in (scale_a, scale_b, bias))
    total = reference(a.abs(), b.abs(), trans_a, trans_b, None, scale_a, scale_b, bias, None, None, tf32)
    total = total if activation is None else _STEEPEST * total
    return total if residual is None else total + residual.abs()


def gradient_magnitude(
    grad_output: Tensor,
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    *_: Any,
) -> tuple[Tensor, ...]:
    inner = grad_output
    if activation is not None:  # its argument's error shows in its slope
        argument = magnitude(a, b, trans_a, trans_b, None, scale_a, scale_b, bias, None, None, tf32=False)
        inner = (_STEEPEST + argument) * grad_output
    scaled = inner
    for scale in (scale_a, scale_b):
        scaled = scaled if scale is None else scaled * scale.abs().reshape(())
    of_operands = _products.gradients(scaled, a.abs(), b.abs(), trans_a, trans_b)
    return (*of_operands, inner.sum(0), grad_output)


def fake_preactivation(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    *_: Any,
) -> tuple[Tensor]:
    """What the activation is given, (M, N) of the result's dtype, bfloat16 for float8; empty without an activation."""
    m, n, _k = sizes(a, b, trans_a, trans_b)
    dtype = out_dtype or a.dtype
    dtype = torch.bfloat16 if dtype in FLOAT8 else dtype
    return (torch.empty((0,) if activation is None else (m, n), dtype=dtype, device=a.device),)


def reduction_of_gradients(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, *_: Any) -> tuple[int, ...]:
    m, n, _k = sizes(a, b, trans_a, trans_b)
    return n, m, m, 1


def sharding(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,
) -> Iterator[Way]:
    of_m, of_n = (1 if trans_a else 0), (0 if trans_b else 1)
    yield {"a": of_m, "residual": 0, "output": 0}
    yield {"b": of_n, "bias": 0, "residual": 1, "output": 1}
    if bias is None and activation is None and residual is None:  # which are not to be added up
        yield {"a": 1 - of_m, "b": 1 - of_n, "output": "sum"}


def _sample(name: str, m: int, n: int, k: int, **more: Any) -> Sample:
    spec = {key: more.pop(key) for key in ("layout", "fill") if key in more}
    args: dict[str, Any] = {
        "a": TensorSpec(shape=(k, m) if more.get("trans_a") else (m, k), **spec),
        "b": TensorSpec(shape=(n, k) if more.get("trans_b") else (k, n), **spec),
    }
    return Sample(name=name, args=args | more)


def samples() -> Iterator[Sample]:
    for m, n, k in [(0, 3, 4), (3, 4, 0), (17, 33, 65), (300, 520, 72)]:
        yield _sample(f"{m}x{n}x{k}", m, n, k)
    yield _sample("one", 1, 1, 1, layout="sliced")
    yield _sample("trans_a", 24, 40, 32, trans_a=True)
    yield _sample("trans_b", 24, 40, 32, trans_b=True, layout="transposed")
    yield _sample("trans_ab", 130, 70, 161, trans_a=True, trans_b=True)
    yield _sample("few-rows", 3, 264, 1040, trans_b=True)
    yield _sample("few-columns", 264, 3, 1040)
    yield _sample("special", 8, 17, 33, fill="special")
    yield _sample("out_dtype", 9, 72, 33, layout="strided", out_dtype=torch.float32)
    scale = TensorSpec(shape=(1,), fill="positive", dtype=torch.float32)
    yield _sample("scales", 72, 72, 72, layout="sliced", scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    bias = TensorSpec(shape=(72,), dtype=torch.bfloat16)
    yield _sample("bias", 65, 72, 40, layout="sliced", bias=bias)
    for activation in _ACTIVATIONS:
        more = {"bias": bias, "activation": activation, "residual": TensorSpec(shape=(9, 72), layout="sliced")}
        yield _sample(activation, 9, 72, 40, layout="strided", **more)


def benchmarks() -> Iterator[Sample]:
    """Squares, a layer of a language model in decoding and in training, and sizes that nothing divides."""
    small = [(16, 256, 256), (256, 256, 256), (1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192)]
    decoding = [(m, 14336, 4096) for m in (1, 16, 64)]
    for m, n, k in [*small, *decoding, (4096, 14336, 4096), (4096, 4096, 14336), (1023, 1023, 1023)]:
        yield _sample(f"{m}x{n}x{k}", m, n, k)
    yield _sample("16x14336x4096-trans_b", 16, 14336, 4096, trans_b=True)
    yield _sample("4096x4096x4096-trans_b", 4096, 4096, 4096, trans_b=True)


matmul.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda a, b, trans_a, *_: a.shape[-2 if trans_a else -1],
    fake=_products.fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=_products.bytes_moved,
    flops=_products.flops,
    dtypes=_products.DTYPES,
    gradient=Gradient(
        inputs=("a", "b", "bias", "residual"),
        magnitude=gradient_magnitude,
        reduction=reduction_of_gradients,
        saved=("a", "b", "scale_a", "scale_b", "bias", "preactivation"),
        like=("a", "b", "bias", "grad_output"),
        dense=True,
        residual_names=("preactivation",),
        residuals=fake_preactivation,
        rounded=lambda *canonical: canonical[_ACTIVATION] is not None,
    ),
    sharding=sharding,
    hints={"static_persistent": (None, False, True), "use_tma": (None, False, True)},
)
