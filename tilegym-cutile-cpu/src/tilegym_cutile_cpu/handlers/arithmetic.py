"""Elementwise arithmetic, comparison and selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile._datatype import DType, is_float, is_signed
from cuda.tile._ir.arithmetic_ops import (
    RawBinaryArithmeticOperation,
    RawBinaryBitwiseOperation,
    RawBitwiseShiftOperation,
    RawComparisonOperation,
    RawFPowIOperation,
    RawWhereOperation,
    Unary,
)
from cuda.tile._ir.ops import FusedMulAddOperation
from torch import Tensor

from tilegym_cutile_cpu import rounding
from tilegym_cutile_cpu.arrays import Pointer
from tilegym_cutile_cpu.lowering import Compute, plain, pure
from tilegym_cutile_cpu.values import cast, compute_dtype, ordered, wrap

Binary = Callable[[Tensor, Tensor], Tensor]

# APPROX and FULL leave the last bits open: torch's own results are as good as any.
_DIRECTED = (ct.RoundingMode.RZ, ct.RoundingMode.RM, ct.RoundingMode.RP)
_HALF = (torch.float16, torch.bfloat16)

_COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
_BITWISE = {"and_": torch.bitwise_and, "or_": torch.bitwise_or, "xor": torch.bitwise_xor}
_UNARY = {
    "abs": torch.abs,
    "neg": torch.neg,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "invert": torch.bitwise_not,
    "bitwise_not": torch.bitwise_not,
}
_FLOAT_BINARY: dict[str, Binary] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "floordiv": lambda a, b: torch.floor(a / b),
    "c_mod": torch.fmod,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "min": torch.fmin,
    "max": torch.fmax,
}
_EXACT = {
    "add": rounding.add,
    "sub": lambda a, b: rounding.add(a, -b),
    "mul": rounding.multiply,
    "truediv": rounding.divide,
}


@pure(RawComparisonOperation)
def raw_cmp(op: RawComparisonOperation) -> Compute:
    compare, dtype = _COMPARE[op.fn], op.lhs.get_type().tensor_dtype()
    if dtype == ct.uint64:
        return lambda lhs, rhs: compare(ordered(lhs, dtype), ordered(rhs, dtype))
    return compare


@pure(RawBinaryBitwiseOperation)
def raw_binary_bitwise(op: RawBinaryBitwiseOperation) -> Compute:
    return _BITWISE[op.fn]


@pure(RawBitwiseShiftOperation)
def raw_bitwise_shift(op: RawBitwiseShiftOperation) -> Compute:
    dtype = op.lhs.get_type().tensor_dtype()
    if op.fn == "lshift":
        return lambda lhs, rhs: wrap(torch.bitwise_left_shift(lhs, rhs), dtype)
    if dtype == ct.uint64:
        return _shift_right_unsigned
    return torch.bitwise_right_shift


def _shift_right_unsigned(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The logical right shift of 64-bit numbers held by their bits."""
    shifted = torch.bitwise_right_shift(lhs, rhs)
    copies_of_the_sign = torch.bitwise_left_shift(torch.full_like(lhs, -1), 64 - rhs)
    return torch.where(rhs == 0, lhs, shifted & ~copies_of_the_sign)


@plain(RawWhereOperation)
def raw_where(condition: Tensor, x: Any, y: Any) -> Tensor | Pointer:
    """Tiles, or pointers that were taken from arrays as foreign pointers."""
    if not isinstance(x, Pointer):
        return torch.where(condition, x, y)
    if x.buffer is y.buffer:
        return Pointer(x.buffer, torch.where(condition, x.offset, y.offset))
    if condition.ndim == 0:
        return x if condition else y
    raise NotImplementedError("a tile of pointers into more than one array cannot be held on the CPU")


def _absolute_of_bits(x: Tensor, bits: int) -> Tensor:
    """What GPUs make of the absolute value of an unsigned integer: they take its bits for a signed one."""
    wide = x.to(torch.int64)
    signed = wide if bits == 64 else wide - ((wide >> (bits - 1)) << bits)
    return signed.abs().to(x.dtype)


@pure(Unary)
def unary(op: Unary) -> Compute:
    dtype, function = op.operand.get_type().tensor_dtype(), _UNARY[op.fn]
    if op.rounding_mode in _DIRECTED:
        return _directed(rounding.square_root, dtype, op.rounding_mode, op.flush_to_zero)
    if is_float(dtype):
        return _flushed(_in_float32(function, dtype), op.flush_to_zero)
    if op.fn == "abs" and not is_signed(dtype):
        return lambda x: _absolute_of_bits(x, dtype.bitwidth)
    return lambda x: wrap(function(x), dtype)


@pure(RawBinaryArithmeticOperation)
def raw_binary_arithmetic(op: RawBinaryArithmeticOperation) -> Compute:
    return binary(op.fn, op.lhs.get_type().tensor_dtype(), op.propagate_nan, op.rounding_mode, op.flush_to_zero)


def binary(
    fn: str, dtype: DType, propagate_nan: bool = False, mode: ct.RoundingMode | None = None, flush: bool = False
) -> Binary:
    """The function of two tiles of `dtype` that the operation `fn` computes."""
    if not is_float(dtype):
        return _integer_binary(fn, dtype)
    if mode in _DIRECTED:
        return _directed(_EXACT[fn], dtype, mode, flush)
    if propagate_nan:
        return _flushed({"min": torch.minimum, "max": torch.maximum}[fn], flush)
    function = _FLOAT_BINARY[fn]
    return _flushed(_in_float32(function, dtype) if fn in ("pow", "atan2", "c_mod") else function, flush)


def _integer_binary(fn: str, dtype: DType) -> Binary:
    if fn in ("min", "max"):
        pick = torch.minimum if fn == "min" else torch.maximum
        if dtype == ct.uint64:
            return lambda a, b: ordered(pick(ordered(a, dtype), ordered(b, dtype)), dtype)
        return pick
    if fn in ("add", "sub", "mul"):
        function = _FLOAT_BINARY[fn]
        return (lambda a, b: wrap(function(a, b), dtype)) if dtype in (ct.uint16, ct.uint32) else function
    floor = _floor_divide_uint64 if dtype == ct.uint64 else _floor_divide
    if fn == "floordiv":
        return lambda a, b: wrap(floor(a, b), dtype)
    if fn == "cdiv":
        return lambda a, b: wrap(_ceil_divide(a, b, floor), dtype)
    if fn == "c_mod":
        return lambda a, b: _remainder(a, b, floor)
    raise NotImplementedError(f"'{fn}' of integers")


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    """Toward minus infinity. Division by zero gives all ones, as on the GPU; on a CPU it would end the process."""
    if a.dtype != torch.uint8:
        safe = torch.where((b == 0) | (b == -1), 1, b)
        quotient = torch.where(b == -1, -a, torch.div(a, safe, rounding_mode="floor"))
        return torch.where(b == 0, torch.full_like(quotient, -1), quotient)
    quotient = torch.div(a, torch.where(b == 0, 1, b), rounding_mode="floor")
    return torch.where(b == 0, torch.full_like(quotient, 255), quotient)


def _floor_divide_uint64(a: Tensor, b: Tensor) -> Tensor:
    """Division of 64-bit unsigned numbers held by their bits, by halving the dividend first."""
    halved = (a >> 1) & ~(-(2**63))
    quotient = torch.div(halved, torch.where(b <= 0, 1, b), rounding_mode="floor") << 1
    rest = a - quotient * b
    quotient = quotient + (ordered(rest, ct.uint64) >= ordered(b, ct.uint64)).to(torch.int64)
    large = (ordered(a, ct.uint64) >= ordered(b, ct.uint64)).to(torch.int64)  # what a divisor of 2**63 or more gives
    return torch.where(b == 0, -1, torch.where(b < 0, large, quotient))


def _ceil_divide(a: Tensor, b: Tensor, floor: Binary) -> Tensor:
    quotient = floor(a, b)
    return quotient + (quotient * b != a).to(quotient.dtype)


def _remainder(a: Tensor, b: Tensor, floor: Binary) -> Tensor:
    """The remainder of C, which has the sign of the dividend."""
    rest = a - floor(a, b) * b
    return torch.where((rest != 0) & ((a < 0) != (b < 0)), rest - b, rest) if floor is _floor_divide else rest


@pure(RawFPowIOperation)
def raw_fpowi(op: RawFPowIOperation) -> Compute:
    dtype = op.base.get_type().tensor_dtype()
    power = _in_float32(torch.pow, dtype)
    return lambda base, exponent: power(base, exponent.to(torch.float64)).to(compute_dtype(dtype))


@pure(FusedMulAddOperation)
def fused_multiply_add(op: FusedMulAddOperation) -> Compute:
    dtype, mode = op.acc.get_type().tensor_dtype(), op.rounding_mode
    if mode in _DIRECTED:
        return _directed(rounding.multiply_add, dtype, mode, op.flush_to_zero)
    if dtype == ct.float64:
        return lambda lhs, rhs, acc: _with_error(*rounding.multiply_add(lhs, rhs, acc))

    def fma(lhs: Tensor, rhs: Tensor, acc: Tensor) -> Tensor:
        return cast(torch.addcmul(acc.double(), lhs.double(), rhs.double()), ct.float64, dtype)

    return _flushed(fma, op.flush_to_zero)


def _with_error(value: Tensor, error: Tensor) -> Tensor:
    return torch.where(error.isfinite(), value + error, value)


def _in_float32(function: Callable[..., Tensor], dtype: DType) -> Callable[..., Tensor]:
    """The function for half-precision tiles, computed in float32 and rounded once, as GPUs do."""
    target = compute_dtype(dtype)
    if target not in _HALF:
        return function
    return lambda *tiles: function(*(tile.float() for tile in tiles)).to(target)


def _flushed(function: Callable[..., Tensor], flush: bool) -> Callable[..., Tensor]:
    """The function with float32 subnormals, in and out, taken as zero."""
    if not flush:
        return function
    return lambda *tiles: _flush(function(*map(_flush, tiles)))


def _flush(x: Tensor) -> Tensor:
    return torch.where(x.abs() < torch.finfo(torch.float32).tiny, x * 0, x)


def _directed(
    exact: Callable[..., tuple[Tensor, Tensor]], dtype: DType, mode: ct.RoundingMode, flush: bool
) -> Callable[..., Tensor]:
    target = compute_dtype(dtype)

    def compute(*tiles: Tensor) -> Tensor:
        value, error = exact(*(tile.double() for tile in tiles))
        return rounding.round_result(value, error, dtype, mode).to(target)

    return _flushed(compute, flush)
