"""Floating-point formats as numbers: rounding to them in every mode, and the bits of those that torch lacks."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cuda.tile as ct
import torch
from cuda.tile._datatype import DType, float8_e5m3fnu
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOAT64_BIAS = 1023


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    mantissa: stored mantissa bits.
    min_exponent: exponent of the smallest normal number.
    largest: the largest finite number.
    saturates: whether what is too large becomes `largest` rather than infinity.
    nan: what NaN becomes; fp4 has none, and takes its largest number.
    unsigned: whether there is no sign: a negative number then becomes NaN.
    smallest: the smallest positive number of a format without zero, else 0.
    """

    mantissa: int
    min_exponent: int
    largest: float
    saturates: bool = False
    nan: float = float("nan")
    unsigned: bool = False
    smallest: float = 0.0


FORMATS: dict[DType, Format] = {
    ct.float32: Format(23, -126, (2 - 2.0**-23) * 2.0**127),
    ct.tfloat32: Format(10, -126, (2 - 2.0**-10) * 2.0**127),
    ct.bfloat16: Format(7, -126, (2 - 2.0**-7) * 2.0**127),
    ct.float16: Format(10, -14, 65504.0),
    ct.float8_e4m3fn: Format(3, -6, 448.0, saturates=True),
    ct.float8_e5m2: Format(2, -14, 57344.0, saturates=True),
    ct.float8_e8m0fnu: Format(0, -127, 2.0**127, saturates=True, unsigned=True, smallest=2.0**-127),
    float8_e5m3fnu: Format(3, -14, 114688.0, saturates=True, unsigned=True),
    ct.float4_e2m1fn: Format(1, 0, 6.0, saturates=True, nan=6.0),
}
_NATIVE = {ct.float8_e4m3fn: torch.float8_e4m3fn, ct.float8_e5m2: torch.float8_e5m2}


def _to_nearest_away(x: Tensor) -> Tensor:
    return torch.copysign((x.abs() + 0.5).floor(), x)


_ROUND: dict[ct.RoundingMode, Callable[[Tensor], Tensor]] = {
    ct.RoundingMode.RN: torch.round,
    ct.RoundingMode.RZ: torch.trunc,
    ct.RoundingMode.RM: torch.floor,
    ct.RoundingMode.RP: torch.ceil,
    ct.RoundingMode.RA: _to_nearest_away,
}


def quantize(value: Tensor, fmt: Format, rounding: ct.RoundingMode) -> Tensor:
    """The numbers of `fmt` that `value` rounds to, as float64."""
    wide = value.to(torch.float64)
    bits = wide.contiguous().view(torch.int64)
    exponent = ((bits >> 52) & 0x7FF) - _FLOAT64_BIAS
    step = torch.clamp(exponent, min=fmt.min_exponent, max=_FLOAT64_BIAS) - fmt.mantissa
    ulp = ((step + _FLOAT64_BIAS) << 52).view(torch.float64)
    rounded = _ROUND[rounding](wide / ulp) * ulp
    too_large = rounded.abs() > fmt.largest
    result = torch.where(too_large, torch.copysign(_overflow(wide, fmt, rounding), wide), rounded)
    if fmt.smallest:
        result = torch.where(result < fmt.smallest, fmt.smallest, result)
    if fmt.unsigned:
        result = torch.where(torch.signbit(wide) & (wide != 0), float("nan"), result)
    return torch.where(wide.isnan(), fmt.nan, result)


def _overflow(wide: Tensor, fmt: Format, rounding: ct.RoundingMode) -> Tensor:
    """The magnitude of what is larger than the format's largest number."""
    if fmt.saturates:
        return torch.full_like(wide, fmt.largest)
    infinite = wide.isinf()
    if rounding is ct.RoundingMode.RZ:
        infinite = infinite.clone()
    elif rounding is ct.RoundingMode.RM:
        infinite = infinite | (wide < 0)
    elif rounding is ct.RoundingMode.RP:
        infinite = infinite | (wide > 0)
    else:
        infinite = torch.ones_like(infinite)
    return torch.where(infinite, float("inf"), fmt.largest).to(torch.float64)


def decode_bits(raw: Tensor, dtype: DType) -> Tensor:
    """The float32 values of `raw`, one byte for each element."""
    if dtype in _NATIVE:
        return raw.view(_NATIVE[dtype]).to(torch.float32)
    return _codes(dtype).index_select(0, raw.reshape(-1).to(torch.int64)).reshape(raw.shape)


def encode_bits(value: Tensor, dtype: DType) -> Tensor:
    """The bytes of float32 `value`, each of which is a number of `dtype`."""
    if dtype in _NATIVE:
        return value.to(_NATIVE[dtype]).view(torch.uint8)
    codes = _codes(dtype)
    magnitudes = codes[: len(codes) // 2] if dtype == ct.float4_e2m1fn else codes[:-1]
    code = torch.searchsorted(magnitudes.contiguous(), value.abs().contiguous()).to(torch.uint8)
    if dtype == ct.float4_e2m1fn:
        return code | (torch.signbit(value).to(torch.uint8) << 3)
    return torch.where(value.isnan(), 255, code).to(torch.uint8)


@functools.cache
def _codes(dtype: DType) -> Tensor:
    """The value of every code of a format that torch does not compute with, in the order of the codes."""
    if dtype == ct.float8_e8m0fnu:
        return torch.cat((torch.exp2(torch.arange(-127.0, 128.0)), torch.tensor([float("nan")])))
    fmt = FORMATS[dtype]
    exponents = 5 if dtype == float8_e5m3fnu else 2
    code = torch.arange(1 << (exponents + fmt.mantissa))
    exponent, fraction = code >> fmt.mantissa, (code & ((1 << fmt.mantissa) - 1)) / 2**fmt.mantissa
    scale = torch.exp2(torch.clamp(exponent, min=1) - 1 + float(fmt.min_exponent))
    values: Tensor = (torch.where(exponent > 0, 1.0, 0.0) + fraction) * scale
    if dtype == ct.float4_e2m1fn:
        return torch.cat((values, -values))
    values[-1] = float("nan")
    return values
