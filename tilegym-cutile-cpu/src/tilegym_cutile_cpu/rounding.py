"""Arithmetic in a rounding mode other than torch's own: exact sums, products, quotients and roots, rounded once.

Each function returns the float64 nearest to the exact result and, where that is inexact, the sign of what is missing.
`round_result` turns the pair into the target format in any direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cuda.tile as ct
import torch
from torch import Tensor

from tilegym_cutile_cpu.formats import FORMATS, quantize

if TYPE_CHECKING:
    from cuda.tile._datatype import DType

_SPLITTER = 2.0**27 + 1  # Veltkamp's constant: halves a float64 into two numbers whose products are exact


def add(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def multiply(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def multiply_add(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    product, product_error = multiply(a, b)
    total, total_error = add(product, c)
    return add(total, total_error + product_error)


def divide(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    quotient = a / b
    product, error = multiply(quotient, b)
    return quotient, ((a - product) - error) * torch.sign(b)


def square_root(a: Tensor) -> tuple[Tensor, Tensor]:
    root = torch.sqrt(a)
    product, error = multiply(root, root)
    return root, (a - product) - error


def _split(a: Tensor) -> tuple[Tensor, Tensor]:
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def round_result(value: Tensor, error: Tensor, dtype: DType, rounding: ct.RoundingMode) -> Tensor:
    """Round the exact `value + error` to `dtype`."""
    error = torch.where(error.isfinite() & value.isfinite(), error, 0.0)
    if dtype == ct.float64:
        toward = {
            ct.RoundingMode.RM: error < 0,
            ct.RoundingMode.RP: error > 0,
            ct.RoundingMode.RZ: error * torch.sign(value) < 0,
        }.get(rounding)
        if toward is None:
            return value
        return torch.where(
            toward, torch.nextafter(value, torch.copysign(torch.full_like(value, torch.inf), error)), value
        )
    # Between two neighbours of the narrow format any float64 rounds alike, so one step toward the error is enough.
    sticky = torch.where(
        error != 0, torch.nextafter(value, torch.copysign(torch.full_like(value, torch.inf), error)), value
    )
    return quantize(sticky, FORMATS[dtype], rounding)
