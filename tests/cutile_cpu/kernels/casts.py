"""Conversions between dtypes and the bits beneath them."""

from __future__ import annotations

import math

import cuda.tile as ct
import numpy as np
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def convert(x, out, n: Int):
    ct.store(out, (0,), ct.load(x, (0,), (n,)).astype(out.dtype))


def _convert(x: torch.Tensor, expected: torch.Tensor) -> Case:
    return Case(convert, (1,), (x, torch.zeros_like(expected), x.numel()), {1: expected})


@case
def float_to_int32_saturates_toward_zero() -> Case:
    x = torch.tensor([1.9, -1.9, 3e9, -3e9, math.inf, -math.inf, math.nan, 0.5])
    top, bottom = 2**31 - 1, -(2**31)
    return _convert(x, torch.tensor([1, -1, top, bottom, top, bottom, 0, 0], dtype=torch.int32))


@case
def float_to_int64_saturates() -> Case:
    x = torch.tensor([2.0**62, 1e19, -1e19, -7.7], dtype=torch.float64)
    return _convert(x, torch.tensor([2**62, 2**63 - 1, -(2**63), -7]))


@case
def float_to_uint64_saturates() -> Case:
    x = torch.tensor([2.0**63 + 2.0**40, 1e20, -3.0, 5.5], dtype=torch.float64)
    return _convert(x, torch.from_numpy(np.array([2**63 + 2**40, 2**64 - 1, 0, 5], np.uint64)))


@case
def float_to_uint8_keeps_the_low_byte_of_uint16() -> Case:
    x = torch.tensor([255.9, 256.0, -1.0, 7.2, 300.0, 32768.0, 70000.0, torch.nan])
    return _convert(x, torch.tensor([255, 0, 0, 7, 44, 0, 255, 0], dtype=torch.uint8))


@case
def float_to_int8_keeps_the_low_byte_of_int16() -> Case:
    x = torch.tensor([300.0, -300.0, 130.0, -130.0, 255.9, 32768.0, -32769.0, torch.nan])
    return _convert(x, torch.tensor([44, -44, -126, 126, -1, -1, 0, 0], dtype=torch.int8))


@case
def float_to_int16_saturates() -> Case:
    x = torch.tensor([300.0, -300.0, 32768.0, -32769.0, 1e10, -1e10, torch.nan, torch.inf])
    return _convert(x, torch.tensor([300, -300, 32767, -32768, 32767, -32768, 0, 32767], dtype=torch.int16))


@case
def nan_to_int64_is_the_least() -> Case:
    x = torch.tensor([torch.nan, 1.5, -torch.inf, torch.inf])
    return _convert(x, torch.tensor([-(2**63), 1, -(2**63), 2**63 - 1]))


@case
def int_to_narrower_int_drops_bits() -> Case:
    x = torch.tensor([0x1_2345_6789, -1, 2**31, -(2**40) + 3])
    return _convert(x, torch.tensor([0x2345_6789, -1, -(2**31), 3], dtype=torch.int32))


@case
def negative_int_to_uint32_wraps() -> Case:
    x = torch.tensor([-1, -(2**31), 5, 0], dtype=torch.int32)
    return _convert(x, torch.from_numpy(np.array([2**32 - 1, 2**31, 5, 0], np.uint32)))


@case
def uint64_to_float32_rounds_once() -> Case:
    values = [2**64 - 1, 2**63 + 1, 2**63 + 2**39, 2**63 + 2**39 + 1, 2**24 + 1, 2**24 + 3, 0, 12345]
    x = np.array(values, np.uint64)
    return _convert(torch.from_numpy(x), torch.from_numpy(x.astype(np.float32)))


@case
def int64_to_bfloat16_rounds_once() -> Case:
    x = torch.tensor([2**24 + 2**16 + 1, -(2**24 + 2**16 + 1), 257, 3])
    return _convert(x, torch.tensor([2**24 + 2**17, -(2**24 + 2**17), 256, 3], dtype=torch.bfloat16))


@case
def int_to_bool() -> Case:
    return _convert(torch.tensor([0, 2, -1, 256], dtype=torch.int32), torch.tensor([False, True, True, True]))


@case
def bool_to_float() -> Case:
    return _convert(torch.tensor([True, False]), torch.tensor([1.0, 0.0], dtype=torch.float16))


@case
def float64_to_float16_rounds_once() -> Case:
    just_above_half = 1.0 + 2.0**-11 + 2.0**-40
    x = torch.tensor([just_above_half, 1.0 + 2.0**-11, 65519.9, 65520.0], dtype=torch.float64)
    return _convert(x, torch.tensor([1.0 + 2.0**-10, 1.0, 65504.0, math.inf], dtype=torch.float16))


@case
def float32_to_e4m3_saturates() -> Case:
    x = torch.tensor([1.0625, 1.1875, 449.0, 1e9, -math.inf, math.nan, 2.0**-10, 0.9 * 2.0**-10])
    expected = torch.tensor([1.0, 1.25, 448.0, 448.0, -448.0, math.nan, 0.0, 0.0])
    return _convert(x, expected.to(torch.float8_e4m3fn).view(torch.float8_e4m3fn))


@case
def float32_to_e5m2_saturates() -> Case:
    x = torch.tensor([1.125, 1.375, 61440.0, math.inf, -1e9, -0.0, 2.0**-16, 3.0])
    expected = torch.tensor([1.0, 1.5, 57344.0, 57344.0, -57344.0, -0.0, 2.0**-16, 3.0])
    return _convert(x, expected.to(torch.float8_e5m2))


@case
def e4m3_to_float32() -> Case:
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn)
    return _convert(codes, codes.float())


@ct.kernel
def convert_directed(x, out, n: Int):
    a = ct.load(x, (0,), (n,))
    ct.store(out, (0, 0), a.astype(ct.float16, rounding_mode=ct.RoundingMode.RN).reshape((1, n)))
    ct.store(out, (1, 0), a.astype(ct.float16, rounding_mode=ct.RoundingMode.RZ).reshape((1, n)))


@ct.kernel
def convert_float64(x, out, n: Int):
    a = ct.load(x, (0,), (n,))
    down = a.astype(ct.float32, rounding_mode=ct.RoundingMode.RM)
    up = a.astype(ct.float32, rounding_mode=ct.RoundingMode.RP)
    ct.store(out, (0, 0), down.reshape((1, n)))
    ct.store(out, (1, 0), up.reshape((1, n)))


@case
def cast_toward_zero() -> Case:
    step = 2.0**-10
    x = torch.tensor([1 + 0.5 * step, 1 + 0.9 * step, -(1 + 0.9 * step), 1e6])
    nearest = torch.tensor([1.0, 1 + step, -(1 + step), math.inf])
    toward_zero = torch.tensor([1.0, 1.0, -1.0, 65504.0])
    return Case(
        convert_directed,
        (1,),
        (x, blank(2, 4, dtype=torch.float16), 4),
        {1: torch.stack((nearest, toward_zero)).half()},
    )


@case
def cast_down_and_up() -> Case:
    x = torch.tensor([0.1, -0.1, 1e300, 2.0], dtype=torch.float64)
    below = torch.tensor([np.nextafter(np.float32(0.1), np.float32(0)), -np.float32(0.1), torch.finfo().max, 2.0])
    above = torch.tensor([np.float32(0.1), np.nextafter(np.float32(-0.1), np.float32(0)), math.inf, 2.0])
    return Case(convert_float64, (1,), (x, blank(2, 4), 4), {1: torch.stack((below, above))})


@ct.kernel
def through_tfloat32(x, out, n: Int):
    ct.store(out, (0,), ct.load(x, (0,), (n,)).astype(ct.tfloat32).astype(ct.float32))


@case
def tfloat32_keeps_ten_mantissa_bits() -> Case:
    step = 2.0**-10
    x = torch.tensor([1 + step, 1 + 0.5 * step, 1 + 1.5 * step, -(1 + 0.51 * step)])
    return Case(through_tfloat32, (1,), (x, blank(4), 4), {1: torch.tensor([1 + step, 1.0, 1 + 2 * step, -(1 + step)])})


@ct.kernel
def through_e8m0(x, out, n: Int):
    a = ct.load(x, (0,), (n,))
    ct.store(
        out, (0, 0), a.astype(ct.float8_e8m0fnu, rounding_mode=ct.RoundingMode.RZ).astype(ct.float32).reshape((1, n))
    )
    ct.store(
        out, (1, 0), a.astype(ct.float8_e8m0fnu, rounding_mode=ct.RoundingMode.RP).astype(ct.float32).reshape((1, n))
    )


@case
def powers_of_two_in_e8m0() -> Case:
    x = torch.tensor([1.0, 1.5, 3.0, 0.7])
    rows = torch.tensor([[1.0, 1.0, 2.0, 0.5], [1.0, 2.0, 4.0, 1.0]])
    return Case(through_e8m0, (1,), (x, blank(2, 4), 4), {1: rows})


@ct.kernel
def through_fp4(x, out, n: Int):
    ct.store(out, (0,), ct.load(x, (0,), (n,)).astype(ct.float4_e2m1fn).astype(ct.float32))


@case
def fp4_rounds_to_even_and_saturates() -> Case:
    x = torch.tensor([0.25, 0.3, 0.75, 1.25, 2.5, 5.0, 100.0, -1.75])
    expected = torch.tensor([0.0, 0.5, 1.0, 1.0, 2.0, 4.0, 6.0, -2.0])
    return Case(through_fp4, (1,), (x, blank(8), 8), {1: expected})


@ct.kernel
def reinterpret(x, out, n: Int):
    ct.store(out, (0,), ct.bitcast(ct.load(x, (0,), (n,)), out.dtype))


@case
def float_bits_as_uint32() -> Case:
    x = torch.tensor([1.0, -0.0, math.inf, 1e-40])
    return Case(reinterpret, (1,), (x, torch.zeros(4, dtype=torch.uint32), 4), {1: x.view(torch.uint32)})


@case
def uint16_bits_as_bfloat16() -> Case:
    x = torch.from_numpy(np.array([0x3F80, 0xC000, 0x7F80, 0x0001], np.uint16))
    return Case(reinterpret, (1,), (x, blank(4, dtype=torch.bfloat16), 4), {1: x.view(torch.bfloat16)})


@case
def e4m3_bits_as_uint8() -> Case:
    x = torch.tensor([1.0, -2.0, 0.0, 448.0]).to(torch.float8_e4m3fn)
    return Case(reinterpret, (1,), (x, torch.zeros(4, dtype=torch.uint8), 4), {1: x.view(torch.uint8)})


@ct.kernel
def pack_and_unpack(x, packed, unpacked, n: Int):
    raw = ct.pack_to_bytes(ct.load(x, (0,), (n,)))
    ct.store(packed, (0,), raw)
    ct.store(unpacked, (0,), ct.unpack_from_bytes(raw, unpacked.dtype))


@case
def int32_to_bytes_and_back_as_int16() -> Case:
    x = torch.tensor([0x0102_0304, -1, 0x7FFF_8000, 5], dtype=torch.int32)
    outs = torch.zeros(16, dtype=torch.uint8), torch.zeros(8, dtype=torch.int16)
    return Case(pack_and_unpack, (1,), (x, *outs, 4), {1: x.view(torch.uint8), 2: x.view(torch.int16)})


@ct.kernel
def unpack_fp4(raw, out, again, n: Int):
    tile = ct.unpack_from_bytes(ct.load(raw, (0,), (n,)), ct.float4_e2m1fn)
    ct.store(out, (0,), tile.astype(ct.float32))
    ct.store(again, (0,), ct.pack_to_bytes(tile))


@case
def fp4_from_bytes_low_half_first() -> Case:
    raw = torch.tensor([0x10, 0x32, 0x54, 0xF6], dtype=torch.uint8)
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, -6.0])
    return Case(unpack_fp4, (1,), (raw, blank(8), torch.zeros(4, dtype=torch.uint8), 4), {1: values, 2: raw})


@ct.kernel
def e5m3_bits(x, out, again, n: Int):
    tile = ct.load(x, (0,), (n,)).astype(ct.float8_e5m3fnu)
    ct.store(out, (0,), ct.bitcast(tile, ct.uint8))
    ct.store(again, (0,), tile.astype(ct.float32))


@case
def unsigned_e5m3() -> Case:
    x = torch.tensor([1.0, 1.0625, 1.1875, 2.0**-17])
    codes = torch.tensor([15 << 3, 15 << 3, 15 << 3 | 2, 1], dtype=torch.uint8)
    expected = torch.tensor([1.0, 1.0, 1.25, 2.0**-17])
    return Case(e5m3_bits, (1,), (x, torch.zeros(4, dtype=torch.uint8), blank(4), 4), {1: codes, 2: expected})


@ct.kernel
def constants(ints, floats, small, flags):
    ct.store(ints, (0,), ct.full((4,), 2**63 + 1, ct.uint64))
    ct.store(floats, (0,), ct.full((4,), 0.1, ct.bfloat16))
    ct.store(small, (0,), ct.astile((1.0, 0.5, 3.0, -448.0), dtype=ct.float8_e4m3fn))
    ct.store(flags, (0,), ct.ones((4,), ct.bool_))


@case
def constants_of_many_dtypes() -> Case:
    args = (
        torch.zeros(4, dtype=torch.uint64),
        blank(4, dtype=torch.bfloat16),
        torch.zeros(4).to(torch.float8_e4m3fn),
        torch.zeros(4, dtype=torch.bool),
    )
    expected = {
        0: torch.from_numpy(np.full(4, 2**63 + 1, np.uint64)),
        1: torch.full((4,), 0.1, dtype=torch.bfloat16),
        2: torch.tensor([1.0, 0.5, 3.0, -448.0]).to(torch.float8_e4m3fn),
        3: torch.ones(4, dtype=torch.bool),
    }
    return Case(constants, (1,), args, expected)
