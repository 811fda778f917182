"""Arithmetic that is rounded once, in a direction, or with subnormals taken as zero."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]
N = 64


@ct.kernel
def multiply_subtract(x, y, z, out, n: Int):
    a, b, c = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,)), ct.load(z, (0,), (n,))
    ct.store(out, (0,), c - a * b)


def _exact_fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    exact = [
        Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    return torch.tensor([float(value) for value in exact], dtype=torch.float64)


@case
def fused_multiply_add_rounds_once() -> Case:
    x, y = torch.randn(N), torch.randn(N)
    z = -(x * y)
    return Case(multiply_subtract, (1,), (x, y, -z, blank(N), N), {3: -_exact_fma(x, y, z).float()})


@case
def fused_multiply_add_of_float64() -> Case:
    x, y = torch.randn(N, dtype=torch.float64), torch.randn(N, dtype=torch.float64)
    z = -(x * y)
    out = blank(N, dtype=torch.float64)
    return Case(multiply_subtract, (1,), (x, y, -z, out, N), {3: -_exact_fma(x, y, z)})


@ct.kernel
def flush(x, y, kept, flushed, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(kept, (0,), ct.mul(a, b))
    ct.store(flushed, (0,), ct.mul(a, b, flush_to_zero=True))


@case
def flush_to_zero() -> Case:
    x, y = torch.tensor([1e-20, 1e-38, 1e-39, 2.0]), torch.tensor([1e-20, 0.25, 1e5, 3.0])
    return Case(flush, (1,), (x, y, blank(4), blank(4), 4), {2: x * y, 3: torch.tensor([0.0, 0.0, 0.0, 6.0])})


@ct.kernel
def directed(x, y, out, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    down, up, zero = ct.RoundingMode.RM, ct.RoundingMode.RP, ct.RoundingMode.RZ
    ct.store(out, (0, 0), ct.add(a, b, rounding_mode=down).reshape((1, n)))
    ct.store(out, (1, 0), ct.add(a, b, rounding_mode=up).reshape((1, n)))
    ct.store(out, (2, 0), ct.sub(a, b, rounding_mode=zero).reshape((1, n)))
    ct.store(out, (3, 0), ct.mul(a, b, rounding_mode=down).reshape((1, n)))
    ct.store(out, (4, 0), ct.truediv(a, b, rounding_mode=up).reshape((1, n)))
    ct.store(out, (5, 0), ct.truediv(a, b, rounding_mode=zero).reshape((1, n)))
    ct.store(out, (6, 0), ct.sqrt(ct.abs(a), rounding_mode=down).reshape((1, n)))
    ct.store(out, (7, 0), ct.sqrt(ct.abs(a), rounding_mode=up).reshape((1, n)))


def _directed(dtype: torch.dtype) -> Case:
    """Exact results as fractions (roots in 60 digits), rounded by looking at the neighbours of the nearest number."""
    x, y = torch.randn(32).to(dtype), torch.randn(32).to(dtype)
    x[0], y[0] = 1.0, 3.0
    context = decimal.Context(prec=60)
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(x.double().tolist(), y.double().tolist(), strict=True)]
    roots = [Fraction(context.sqrt(decimal.Decimal(abs(a)))) for a in x.double().tolist()]
    exact = [
        ("down", [a + b for a, b in pairs]),
        ("up", [a + b for a, b in pairs]),
        ("zero", [a - b for a, b in pairs]),
        ("down", [a * b for a, b in pairs]),
        ("up", [a / b for a, b in pairs]),
        ("zero", [a / b for a, b in pairs]),
        ("down", roots),
        ("up", roots),
    ]
    rows = [torch.stack([_round(value, mode, dtype) for value in values]) for mode, values in exact]
    return Case(directed, (1,), (x, y, blank(8, 32, dtype=dtype), 32), {2: torch.stack(rows)})


def _round(value: Fraction, mode: str, dtype: torch.dtype) -> torch.Tensor:
    near = torch.tensor(float(value), dtype=torch.float64).to(dtype)
    goal = {"down": -math.inf, "up": math.inf, "zero": 0.0}[mode]
    too_far = {"down": lambda n: n > value, "up": lambda n: n < value, "zero": lambda n: abs(n) > abs(value)}[mode]
    while too_far(Fraction(near.double().item())):
        near = torch.nextafter(near, torch.tensor(goal, dtype=dtype))
    return near


@case
def directed_rounding_of_float32() -> Case:
    return _directed(torch.float32)


@case
def directed_rounding_of_float64() -> Case:
    return _directed(torch.float64)


@case
def directed_rounding_of_float16() -> Case:
    return _directed(torch.float16)
