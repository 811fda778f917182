"""How tile values are held: a torch tensor per tile, in a dtype that computes what the kernel's dtype would.

Every cuTile dtype has a *compute* dtype, in which tiles live between operations, and a *memory* dtype, whose bits are
those of the array. They differ where torch cannot compute: 16-, 32- and 64-bit unsigned integers live in int64 (64-bit
ones by their bits), and floats of 8 bits or fewer live in float32, which holds each of their values exactly.
Tiles are never changed in place.
"""

from __future__ import annotations

import functools
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile._bytecode.float import float_from_bits, float_to_bits
from cuda.tile._datatype import (
    DType,
    dtype_simple_bytecode_type,
    float8_e5m3fnu,
    is_boolean,
    is_float,
    is_integral,
    is_signed,
)
from torch import Tensor

from tilegym_cutile_cpu.formats import FORMATS, decode_bits, encode_bits, quantize

_COMPUTE: dict[DType, torch.dtype] = {
    ct.bool_: torch.bool,
    ct.int8: torch.int8,
    ct.int16: torch.int16,
    ct.int32: torch.int32,
    ct.int64: torch.int64,
    ct.uint8: torch.uint8,
    ct.uint16: torch.int64,
    ct.uint32: torch.int64,
    ct.uint64: torch.int64,
    ct.float16: torch.float16,
    ct.bfloat16: torch.bfloat16,
    ct.float32: torch.float32,
    ct.float64: torch.float64,
    ct.tfloat32: torch.float32,
    ct.float8_e4m3fn: torch.float32,
    ct.float8_e5m2: torch.float32,
    ct.float8_e8m0fnu: torch.float32,
    float8_e5m3fnu: torch.float32,
    ct.float4_e2m1fn: torch.float32,
}
_MEMORY: dict[DType, torch.dtype] = {
    **_COMPUTE,
    ct.uint16: torch.int16,
    ct.uint32: torch.int32,
    ct.uint64: torch.int64,
    ct.float8_e4m3fn: torch.uint8,
    ct.float8_e5m2: torch.uint8,
    ct.float8_e8m0fnu: torch.uint8,
    float8_e5m3fnu: torch.uint8,
    ct.float4_e2m1fn: torch.uint8,
}
_MASKED = (ct.uint16, ct.uint32)
_CODED = tuple(dtype for dtype in _MEMORY if is_float(dtype) and _MEMORY[dtype] == torch.uint8)
_SIGN_BIT = -(2**63)


def compute_dtype(dtype: DType) -> torch.dtype:
    return _COMPUTE[dtype]


def memory_dtype(dtype: DType) -> torch.dtype:
    return _MEMORY[dtype]


def decode(raw: Tensor, dtype: DType) -> Tensor:
    """The tile that the bits `raw`, in `dtype`'s memory dtype, stand for."""
    if dtype in _CODED:
        return decode_bits(raw, dtype)
    return wrap(raw.to(_COMPUTE[dtype]), dtype)


def encode(value: Tensor, dtype: DType) -> Tensor:
    """The bits of a tile of `dtype`, in its memory dtype."""
    if dtype in _CODED:
        return encode_bits(value, dtype)
    return value.to(_MEMORY[dtype])


def wrap(value: Tensor, dtype: DType) -> Tensor:
    """Bring the result of integer arithmetic back into the range of a 16- or 32-bit unsigned dtype."""
    return value & ((1 << dtype.bitwidth) - 1) if dtype in _MASKED else value


def ordered(value: Tensor, dtype: DType) -> Tensor:
    """A tensor that sorts like `value`: uint64 tiles, held by their bits, have their top bit flipped."""
    return value ^ _SIGN_BIT if dtype == ct.uint64 else value


def constant(value: object, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """The tile of a compile-time constant: one number, or nested tuples of numbers of that shape."""
    numbers = [_representable(number, dtype) for number in _flatten(value)]
    tile = wrap(torch.tensor(numbers, dtype=_COMPUTE[dtype]), dtype)
    return tile.reshape(shape) if isinstance(value, tuple) else tile.reshape(()).expand(shape)


@functools.lru_cache(maxsize=1 << 16)
def scalar(number: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tile of one integer, shared by all who ask for it."""
    return torch.tensor(number, dtype=dtype)


def _flatten(value: object) -> list[Any]:
    return [leaf for item in value for leaf in _flatten(item)] if isinstance(value, tuple) else [value]


def _representable(number: Any, dtype: DType) -> float | int | bool:
    """What the compiler stores for a constant, as a number that the compute dtype can hold."""
    if is_float(dtype):
        kind = dtype_simple_bytecode_type(dtype)
        stored: float = float_from_bits(float_to_bits(float(number), kind), kind)
        return stored
    if is_boolean(dtype):
        return bool(number)
    bits: int = dtype.bitwidth
    unsigned = int(number) & ((1 << bits) - 1)
    wraps = (is_signed(dtype) or dtype == ct.uint64) and unsigned >> (bits - 1)
    return unsigned - (1 << bits) if wraps else unsigned


def cast(value: Tensor, source: DType, target: DType, rounding: ct.RoundingMode | None = None) -> Tensor:
    """Convert a tile as `ct.astype` does."""
    if is_float(target):
        if is_float(source):
            return _float_to_float(value, source, target, rounding or ct.RoundingMode.RN)
        return _int_to_float(value, source, target)
    if is_boolean(target):
        return value != 0 if not is_float(source) else value.trunc() != 0
    if is_float(source):
        return _float_to_int(value, target)
    return wrap(value.to(_COMPUTE[target]), target)


def _float_to_float(value: Tensor, source: DType, target: DType, rounding: ct.RoundingMode) -> Tensor:
    if target == ct.float64 or (target == ct.float32 and source != ct.float64):
        return value.to(_COMPUTE[target])
    if rounding is ct.RoundingMode.RN and target in (ct.float16, ct.bfloat16, ct.float32) and source != ct.float64:
        return value.to(_COMPUTE[target])
    if rounding is ct.RoundingMode.RN and target == ct.float32:
        return value.to(torch.float32)
    return quantize(value, FORMATS[target], rounding).to(_COMPUTE[target])


def _int_to_float(value: Tensor, source: DType, target: DType) -> Tensor:
    if target == ct.float32 and source != ct.uint64:
        return value.to(torch.float32)
    if source != ct.uint64:
        wide = _to_float64(value, target)
    else:
        halved = ((value >> 1) & ~_SIGN_BIT) | (value & 1)
        wide = torch.where(value < 0, _to_float64(halved, target) * 2, _to_float64(value, target))
    return _float_to_float(wide, ct.float64, target, ct.RoundingMode.RN)


def _to_float64(value: Tensor, target: DType) -> Tensor:
    """A float64 that rounds to `target` as the integers do: bits that float64 cannot hold are merged into its last."""
    if value.dtype != torch.int64 or target == ct.float64:
        return value.to(torch.float64)
    merged = (value & ~0x7FF) | (((value & 0x7FF) != 0).to(torch.int64) << 11)
    return torch.where(value.abs() >= 1 << 53, merged, value).to(torch.float64)


def _float_to_int(value: Tensor, target: DType) -> Tensor:
    """Toward zero; what does not fit goes to the nearest end of the range, and NaN to zero, as NVIDIA GPUs do.

    Two exceptions, seen on an H200: eight bits are the low ones of what sixteen hold, and NaN as 64 bits is 2^63.
    """
    bits = max(target.bitwidth, 16)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed(target) else (0, 2**bits - 1)
    wide = value.to(torch.float64).nan_to_num(nan=0.0, posinf=2.0**70, neginf=-(2.0**70)).trunc()
    if target == ct.uint64:
        upper = (wide - 2.0**63).clamp(0, 2.0**63 - 1024).to(torch.int64) ^ _SIGN_BIT
        whole = torch.where(wide >= 2.0**63, upper, wide.clamp(0, 2.0**63 - 1024).to(torch.int64))
        return torch.where(value.isnan(), _SIGN_BIT, torch.where(wide >= 2.0**64, -1, whole))
    if bits == 64:
        whole = torch.where(wide >= 2.0**63, high, wide.clamp(low, 2.0**63 - 1024).to(torch.int64))
        return torch.where(value.isnan(), low, whole)
    return wide.clamp(low, high).to(torch.int64).to(_COMPUTE[target])


def undetermined(dtype: DType) -> float | int | bool:
    """A value that shows up in results when a kernel relies on one it was not promised."""
    if is_integral(dtype):
        return 0x5A if dtype.bitwidth == 8 else 0x5AA5 if dtype.bitwidth == 16 else 0x5AA5_5AA5
    if is_boolean(dtype):
        return True
    return 0.0 if dtype == ct.float4_e2m1fn else float("nan")


def to_numbers(value: Tensor, dtype: DType) -> Any:
    """The elements as nested lists of Python numbers, or one number for a scalar."""

    def number(item: Any) -> Any:
        if isinstance(item, list):
            return [number(i) for i in item]
        return item + (1 << 64) if dtype == ct.uint64 and item < 0 else item

    return number(value.tolist())
