"""What the contracts of matrix products have in common."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.contract import FLOAT8, FLOATS, check_device, check_tensor
from tilegym.errors import ArgumentValueError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

DTYPES: Final = (*FLOATS, *FLOAT8)


def check_operand(op: str, name: str, value: Tensor, dims: int, *, dtypes: tuple[torch.dtype, ...] = DTYPES) -> None:
    """`value` must be a matrix, or with `dims` = 3 a batch of them, of one of `dtypes`."""
    check_tensor(op, name, value, dtypes=dtypes)
    if value.dim() != dims:
        raise ShapeError(f"{op}: {name} must have {dims} dimensions, got shape {tuple(value.shape)}")


def check_fit(op: str, names: tuple[str, str], a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> None:
    """`b` must lie on the device of `a`, have its batch, and as many rows as that has columns, once both are turned."""
    check_device(op, names[1], b, a, names[0])
    inner = a.shape[-2 if trans_a else -1]
    at = -1 if trans_b else -2
    wanted = [*a.shape[:-2], *b.shape[-2:]]
    wanted[at] = inner
    if tuple(b.shape) != tuple(wanted):
        raise ShapeError(
            f"{op}: {names[1]} must have shape {tuple(wanted)} to fit {names[0]} of shape {tuple(a.shape)}"
            f"{' transposed' if trans_a else ''}, got {tuple(b.shape)}"
        )


def checked_out_dtype(op: str, dtype: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype | None:
    """The result's dtype, None if it is that of float32, float16 or bfloat16 operands."""
    if out_dtype is None or out_dtype == dtype:
        return dtype if dtype in FLOAT8 else None
    if out_dtype not in DTYPES:
        accepted = ", ".join(str(one).removeprefix("torch.") for one in DTYPES)
        raise ArgumentValueError(f"{op}: out_dtype must be one of {accepted}, or None, got {out_dtype!r}")
    return out_dtype


def multiplies_in_tf32(dtype: torch.dtype) -> bool:
    """Whether PyTorch's own matrix products round operands of this dtype to tf32 on a GPU."""
    return dtype == torch.float32 and _allows_tf32()


def _allows_tf32() -> bool:
    """However it was said: to read `allow_tf32` where it was by `fp32_precision` is an error."""
    allowed: bool = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return allowed


# What torch.compiler.assume_constant_result sets, without importing the compiler; it compiles anew when this changes.
_allows_tf32._dynamo_marked_constant = True  # type: ignore[attr-defined]  # noqa: SLF001 - as said above


def turned(matrix: Tensor, transposed: bool) -> Tensor:
    """The matrix, or its transpose."""
    return matrix.mT if transposed else matrix


def sizes(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> tuple[int, int, int]:
    """M, N, K."""
    return a.shape[-1 if trans_a else -2], b.shape[-2 if trans_b else -1], a.shape[-2 if trans_a else -1]


def saturated(product: Tensor, out_dtype: torch.dtype | None) -> Tensor:
    """What a result of float8 can hold; others overflow to infinity."""
    if out_dtype not in FLOAT8:
        return product
    largest = torch.finfo(out_dtype).max
    return product.clamp(-largest, largest)


def fake(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, out_dtype: torch.dtype | None, *_: Any) -> Tensor:
    """An empty product, contiguous."""
    m, n, _k = sizes(a, b, trans_a, trans_b)
    return torch.empty((*a.shape[:-2], m, n), dtype=out_dtype or a.dtype, device=a.device)


def flops(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, *_: Any) -> int:
    """A multiplication and an addition for each term."""
    return 2 * a.numel() * b.shape[-2 if trans_b else -1]


def bytes_moved(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, out_dtype: torch.dtype | None, *more: Any) -> int:
    """Operands and further tensors read, the product written."""
    m, n, _ = sizes(a, b, trans_a, trans_b)
    read = sum(one.numel() * one.element_size() for one in (a, b, *more) if isinstance(one, torch.Tensor))
    return read + math.prod(a.shape[:-2]) * m * n * (out_dtype or a.dtype).itemsize


def gradients(grad: Tensor, a: Tensor, b: Tensor, trans_a: bool, trans_b: bool) -> tuple[Tensor, Tensor]:
    """Of sums of products of positive terms: the gradients of `a` and `b`."""
    return (
        turned(grad @ turned(b, trans_b).mT, trans_a),
        turned(turned(a, trans_a).mT @ grad, trans_b),
    )
