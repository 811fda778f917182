"""Arithmetic, comparison, selection and mathematical functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cuda.tile as ct
import numpy as np
import torch

from tests.cutile_cpu.cases import Case, blank, case

if TYPE_CHECKING:
    from collections.abc import Callable

Int = ct.Constant[int]
N = 64


@ct.kernel
def add_sub_mul_div(x, y, total, difference, product, quotient, n: Int):
    a, b = ct.load(x, (ct.bid(0),), (n,)), ct.load(y, (ct.bid(0),), (n,))
    ct.store(total, (ct.bid(0),), a + b)
    ct.store(difference, (ct.bid(0),), a - b)
    ct.store(product, (ct.bid(0),), a * b)
    ct.store(quotient, (ct.bid(0),), a / b)


def _float_arithmetic(dtype: torch.dtype) -> Case:
    x, y = torch.randn(256).to(dtype), torch.randn(256).to(dtype)
    outs = [blank(256, dtype=dtype) for _ in range(4)]
    expected = {2: x + y, 3: x - y, 4: x * y, 5: x / y}
    return Case(add_sub_mul_div, (4,), (x, y, *outs, N), expected)


@case
def float32_arithmetic() -> Case:
    return _float_arithmetic(torch.float32)


@case
def float64_arithmetic() -> Case:
    return _float_arithmetic(torch.float64)


@case
def float16_arithmetic() -> Case:
    return _float_arithmetic(torch.float16)


@case
def bfloat16_arithmetic() -> Case:
    return _float_arithmetic(torch.bfloat16)


@ct.kernel
def integer_division(x, y, floor, ceil, rest, total, product, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(floor, (0,), a // b)
    ct.store(ceil, (0,), ct.cdiv(a, b))
    ct.store(rest, (0,), a % b)
    ct.store(total, (0,), a + b)
    ct.store(product, (0,), a * b)


def _integer_division(dtype: type[np.integer]) -> Case:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(1)
    a = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    b = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    b[:16] = rng.integers(1, 9, 16)
    a[:4], b[:4] = (info.max, info.max, info.min, info.max - 1), (1, info.max, info.max, info.max)
    b[b == 0] = 7
    exact_a, exact_b = a.astype(object), b.astype(object)
    with np.errstate(over="ignore"):
        expected = [
            (exact_a // exact_b).astype(dtype),
            (-(-exact_a // exact_b)).astype(dtype),
            (exact_a % exact_b).astype(dtype),
            a + b,
            a * b,
        ]
    outs = [torch.from_numpy(np.zeros(N, dtype)) for _ in expected]
    return Case(
        integer_division,
        (1,),
        (torch.from_numpy(a), torch.from_numpy(b), *outs, N),
        {2 + i: torch.from_numpy(value) for i, value in enumerate(expected)},
    )


for _dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):

    def _make(dtype: type[np.integer] = _dtype) -> Case:
        return _integer_division(dtype)

    _make.__name__ = f"{_dtype.__name__}_division"
    case(_make)


@ct.kernel
def divide_by_zero(x, y, out, n: Int):
    ct.store(out, (0,), ct.load(x, (0,), (n,)) // ct.load(y, (0,), (n,)))


@case
def division_by_zero_and_overflow_do_not_trap() -> Case:
    x = torch.tensor([5, -5, 0, -(2**31)], dtype=torch.int32)
    y = torch.tensor([0, 0, 0, -1], dtype=torch.int32)
    expected = torch.tensor([-1, -1, -1, -(2**31)], dtype=torch.int32)
    return Case(divide_by_zero, (1,), (x, y, blank(4, dtype=torch.int32), 4), {2: expected})


@case
def unsigned_division_by_zero_gives_all_ones() -> Case:
    x, y = torch.tensor([7, 0], dtype=torch.uint16), torch.tensor([0, 0], dtype=torch.uint16)
    expected = torch.tensor([65535, 65535], dtype=torch.uint16)
    return Case(divide_by_zero, (1,), (x, y, torch.zeros(2, dtype=torch.uint16), 2), {2: expected})


@ct.kernel
def float_floor_and_mod(x, y, floor, rest, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(floor, (0,), a // b)
    ct.store(rest, (0,), a % b)


@case
def half_precision_floor_division_rounds_before_the_floor() -> Case:
    x, y = torch.tensor([2047.0, 2.0]).half(), torch.tensor([1.0005, 0.7]).half()
    expected = torch.floor((x.double() / y.double()).half())
    outs = blank(2, dtype=torch.float16), blank(2, dtype=torch.float16)
    rest = torch.remainder(x.double(), y.double()).half()
    return Case(float_floor_and_mod, (1,), (x, y, *outs, 2), {2: expected, 3: rest})


@case
def float_floor_division_and_modulo() -> Case:
    x, y = torch.randn(N) * 10, torch.randn(N)
    return Case(
        float_floor_and_mod,
        (1,),
        (x, y, blank(N), blank(N), N),
        {2: torch.floor(x / y), 3: torch.remainder(x, y)},
        atol=1e-6,
    )


@ct.kernel
def powers(x, y, float_power, integer_power, angle, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(float_power, (0,), ct.pow(ct.abs(a), b))
    ct.store(integer_power, (0,), ct.pow(a, ct.full((n,), 3, ct.int32)))
    ct.store(angle, (0,), ct.atan2(a, b))


@case
def power_and_angle() -> Case:
    x, y = torch.randn(N), torch.randn(N)
    expected = {2: x.abs().double() ** y.double(), 3: x.double() ** 3, 4: torch.atan2(x.double(), y.double())}
    return Case(
        powers,
        (1,),
        (x, y, blank(N), blank(N), blank(N), N),
        {k: v.float() for k, v in expected.items()},
        rtol=1e-6,
    )


@ct.kernel
def extremes(x, y, least, greatest, least_nan, greatest_nan, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(least, (0,), ct.minimum(a, b))
    ct.store(greatest, (0,), ct.maximum(a, b))
    ct.store(least_nan, (0,), ct.minimum(a, b, propagate_nan=True))
    ct.store(greatest_nan, (0,), ct.maximum(a, b, propagate_nan=True))


@case
def minimum_and_maximum_with_nan() -> Case:
    x, y = torch.randn(N), torch.randn(N)
    x[:8], y[4:12] = float("nan"), float("nan")
    expected = {2: torch.fmin(x, y), 3: torch.fmax(x, y), 4: torch.minimum(x, y), 5: torch.maximum(x, y)}
    return Case(extremes, (1,), (x, y, blank(N), blank(N), blank(N), blank(N), N), expected)


@ct.kernel
def compare(x, y, out, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(out, (0, 0), (a == b).reshape((1, n)))
    ct.store(out, (1, 0), (a != b).reshape((1, n)))
    ct.store(out, (2, 0), (a < b).reshape((1, n)))
    ct.store(out, (3, 0), (a <= b).reshape((1, n)))
    ct.store(out, (4, 0), (a > b).reshape((1, n)))
    ct.store(out, (5, 0), (a >= b).reshape((1, n)))


def _comparison(a: np.ndarray, b: np.ndarray) -> Case:
    rows = [a == b, a != b, a < b, a <= b, a > b, a >= b]
    args = (torch.from_numpy(a), torch.from_numpy(b), torch.zeros(6, len(a), dtype=torch.bool), len(a))
    return Case(compare, (1,), args, {2: torch.from_numpy(np.stack(rows))})


@case
def float_comparison_with_nan() -> Case:
    a = np.array([1.0, 2.0, np.nan, np.nan, -0.0, np.inf, -np.inf, 3.0], np.float32)
    b = np.array([1.0, 1.0, 1.0, np.nan, 0.0, np.inf, np.inf, 4.0], np.float32)
    return _comparison(a, b)


@case
def unsigned_64_bit_comparison() -> Case:
    a = np.array([0, 2**63, 2**64 - 1, 5, 2**63 - 1, 2**63, 1, 2**64 - 2], np.uint64)
    b = np.array([2**63, 1, 2**64 - 1, 6, 2**63, 2**63, 0, 2**64 - 1], np.uint64)
    return _comparison(a, b)


@ct.kernel
def bits(x, y, conjunction, disjunction, difference, complement, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(conjunction, (0,), a & b)
    ct.store(disjunction, (0,), a | b)
    ct.store(difference, (0,), a ^ b)
    ct.store(complement, (0,), ~a)


def _bits(dtype: type[np.generic]) -> Case:
    rng = np.random.default_rng(2)
    if dtype is np.bool_:
        a, b = rng.random(N) < 0.5, rng.random(N) < 0.5
    else:
        info = np.iinfo(dtype)
        a, b = (rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True) for _ in range(2))
    outs = [torch.from_numpy(np.zeros(N, dtype)) for _ in range(4)]
    expected = [a & b, a | b, a ^ b, ~a]
    args = (torch.from_numpy(a), torch.from_numpy(b), *outs, N)
    return Case(bits, (1,), args, {2 + i: torch.from_numpy(value) for i, value in enumerate(expected)})


@case
def bits_of_int32() -> Case:
    return _bits(np.int32)


@case
def bits_of_uint16() -> Case:
    return _bits(np.uint16)


@case
def bits_of_uint64() -> Case:
    return _bits(np.uint64)


@case
def bits_of_bool() -> Case:
    return _bits(np.bool_)


@ct.kernel
def shifts(x, by, left, right, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(by, (0,), (n,))
    ct.store(left, (0,), a << b)
    ct.store(right, (0,), a >> b)


def _shifts(dtype: type[np.integer]) -> Case:
    info, rng = np.iinfo(dtype), np.random.default_rng(3)
    a = rng.integers(info.min, info.max, N, dtype=dtype, endpoint=True)
    by = rng.integers(0, info.bits, N).astype(dtype)
    by[0] = 0
    args = (torch.from_numpy(a), torch.from_numpy(by), *(torch.from_numpy(np.zeros(N, dtype)) for _ in range(2)), N)
    return Case(shifts, (1,), args, {2: torch.from_numpy(a << by), 3: torch.from_numpy(a >> by)})


@case
def shifts_of_int32() -> Case:
    return _shifts(np.int32)


@case
def shifts_of_uint8() -> Case:
    return _shifts(np.uint8)


@case
def shifts_of_uint32() -> Case:
    return _shifts(np.uint32)


@case
def shifts_of_uint64() -> Case:
    return _shifts(np.uint64)


@ct.kernel
def absolute_and_negative(x, magnitude, opposite, n: Int):
    a = ct.load(x, (0,), (n,))
    ct.store(magnitude, (0,), ct.abs(a))
    ct.store(opposite, (0,), -a)


@case
def absolute_and_negative_uint32() -> Case:
    x = np.array([0, 1, 2**31, 2**32 - 1], np.uint32)
    outs = [torch.from_numpy(np.zeros(4, np.uint32)) for _ in range(2)]
    magnitude = np.array([0, 1, 2**31, 1], np.uint32)  # the bits of a signed number, as on an H200
    expected = {1: torch.from_numpy(magnitude), 2: torch.from_numpy(np.negative(x))}
    return Case(absolute_and_negative, (1,), (torch.from_numpy(x), *outs, 4), expected)


@case
def absolute_and_negative_int8() -> Case:
    x = torch.tensor([0, 1, -1, -128], dtype=torch.int8)
    expected = {1: torch.tensor([0, 1, 1, -128], dtype=torch.int8), 2: torch.tensor([0, -1, 1, -128], dtype=torch.int8)}
    return Case(absolute_and_negative, (1,), (x, torch.zeros_like(x), torch.zeros_like(x), 4), expected)


@ct.kernel
def functions(x, out, n: Int):
    a = ct.load(x, (0,), (n,))
    positive = ct.abs(a) + 0.25
    ct.store(out, (0, 0), ct.exp(a).reshape((1, n)))
    ct.store(out, (1, 0), ct.exp2(a).reshape((1, n)))
    ct.store(out, (2, 0), ct.log(positive).reshape((1, n)))
    ct.store(out, (3, 0), ct.log2(positive).reshape((1, n)))
    ct.store(out, (4, 0), ct.sqrt(positive).reshape((1, n)))
    ct.store(out, (5, 0), ct.rsqrt(positive).reshape((1, n)))
    ct.store(out, (6, 0), ct.sin(a).reshape((1, n)))
    ct.store(out, (7, 0), ct.cos(a).reshape((1, n)))
    ct.store(out, (8, 0), ct.tan(a).reshape((1, n)))
    ct.store(out, (9, 0), ct.sinh(a).reshape((1, n)))
    ct.store(out, (10, 0), ct.cosh(a).reshape((1, n)))
    ct.store(out, (11, 0), ct.tanh(a).reshape((1, n)))
    ct.store(out, (12, 0), ct.floor(a).reshape((1, n)))
    ct.store(out, (13, 0), ct.ceil(a).reshape((1, n)))
    ct.store(out, (14, 0), ct.tanh(a, rounding_mode=ct.RoundingMode.APPROX).reshape((1, n)))


@ct.kernel
def half_functions(x, out, n: Int):
    a = ct.load(x, (0,), (n,))
    ct.store(out, (0, 0), ct.exp(a).reshape((1, n)))
    ct.store(out, (1, 0), ct.sin(a).reshape((1, n)))
    ct.store(out, (2, 0), ct.tanh(a).reshape((1, n)))


@case
def mathematical_functions() -> Case:
    x = torch.randn(N)
    d, p = x.double(), x.double().abs() + 0.25
    on_x: list[Callable[[torch.Tensor], torch.Tensor]] = [torch.exp, torch.exp2]
    rows = [f(d) for f in on_x] + [torch.log(p), torch.log2(p), torch.sqrt(p), torch.rsqrt(p)]
    rows += [f(d) for f in (torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.tanh)]
    rows += [torch.floor(d), torch.ceil(d), torch.tanh(d)]
    return Case(
        functions,
        (1,),
        (x, blank(16, N), N),
        {1: torch.cat((torch.stack(rows).float(), blank(1, N)))},
        rtol=1e-6,
        atol=1e-6,
    )


@case
def half_precision_functions_round_once() -> Case:
    x = torch.randn(N).half()
    rows = torch.stack([f(x.double()).half() for f in (torch.exp, torch.sin, torch.tanh)])
    return Case(half_functions, (1,), (x, blank(3, N, dtype=torch.float16), N), {1: rows})


@ct.kernel
def select(condition, x, y, out, n: Int):
    c = ct.load(condition, (0,), (n,))
    ct.store(out, (0,), ct.where(c, ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))))


@case
def selection() -> Case:
    condition, x, y = torch.rand(N) < 0.5, torch.randn(N), torch.randn(N)
    return Case(select, (1,), (condition, x, y, blank(N), N), {3: torch.where(condition, x, y)})


@ct.kernel
def is_nan(x, out, n: Int):
    ct.store(out, (0,), ct.isnan(ct.load(x, (0,), (n,))))


@case
def not_a_number() -> Case:
    x = torch.tensor([1.0, math.nan, math.inf, -math.nan])
    return Case(is_nan, (1,), (x, torch.zeros(4, dtype=torch.bool), 4), {1: torch.tensor([False, True, False, True])})
