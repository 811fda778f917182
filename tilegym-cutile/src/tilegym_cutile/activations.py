"""Activations, their slopes and gradients, as tile functions: what their own ops, gated ones and products share.

SiLU and both forms of GELU are x * sigmoid(...). GELU's normal distribution has no closed form, and cuTile no erf, so
its logit is a fitted polynomial: that keeps the left tail, where 1 + erf cancels, as precise as the rest.
"""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct

from tilegym_cutile import tiles

# log2(1 / Φ(x) - 1) / x for the normal distribution Φ, as polynomials of x², the highest power first. Minimax fits over
# |x| <= 6.5 by reweighted least squares in float64; beyond, all fall for ever, as they should. Short results need not
# have Φ better than they can tell; where Φ is below 1e-7 no result does.
_CDF_FLOAT32 = (
    *(-1.65672036e-13, 2.05764076e-11, -9.136109e-10, 1.42511581e-08, 1.6704161e-07),
    *(-1.01562937e-05, 0.000155549774, 0.0001001722, -0.104838887, -2.3022087),
)
"""Φ to within 1.3e-8."""
_CDF_FLOAT16 = (
    *(-2.64782218e-09, 2.33593081e-07, -8.09390199e-06, 0.000124390766),
    *(0.000269844475, -0.105205557, -2.30198797),
)
"""Φ to within 5e-5 of itself, or 3e-8."""
_CDF_BFLOAT16 = (-1.00033574e-05, 0.00134494461, -0.108852785, -2.29849425)
"""Φ to within 1.1e-3 of itself, or 3e-8."""

_LOGIT_TANH = (2 * math.sqrt(2 / math.pi) * 0.044715, 2 * math.sqrt(2 / math.pi))
"""Twice what stands under tanh, over x, as a polynomial of x²: (1 + tanh(z)) / 2 is sigmoid(2z)."""
_CDF_TANH = (-tiles.LOG2E * _LOGIT_TANH[0], -tiles.LOG2E * _LOGIT_TANH[1])
_DENSITY = 1 / math.sqrt(2 * math.pi)
_FARTHEST = 64.0
"""Beyond |x| = 8 all slopes are 0 or 1; squares are held to this, so that none overflows to inf * 0."""


def silu(x: Any, dtype: Any) -> Any:  # noqa: ARG001 - all activations are called alike
    """SiLU: x / (1 + exp(-x))."""
    return x * tiles.reciprocal(1.0 + tiles.exp_term(-x))


def silu_and_slope(x: Any) -> Any:
    """SiLU and its derivative."""
    sigmoid = tiles.reciprocal(1.0 + tiles.exp_term(-x))
    value = x * sigmoid
    return value, sigmoid + value * (1.0 - sigmoid)


def gelu(x: Any, dtype: Any) -> Any:
    """GELU: x Φ(x), as precise as results of `dtype` can tell."""
    if dtype == ct.bfloat16:
        return x * _sigmoid(x, _CDF_BFLOAT16)
    if dtype == ct.float16:
        return x * _sigmoid(x, _CDF_FLOAT16)
    return x * _sigmoid(x, _CDF_FLOAT32)


def gelu_and_slope(x: Any) -> Any:
    """GELU and its derivative, Φ(x) + x Φ'(x): always in float32's precision, since the terms cancel near -0.75."""
    cdf = _sigmoid(x, _CDF_FLOAT32)
    density = _DENSITY * ct.exp2(x * x * (-tiles.LOG2E / 2), flush_to_zero=True)
    return x * cdf, cdf + x * density


def gelu_tanh(x: Any, dtype: Any) -> Any:  # noqa: ARG001 - all activations are called alike
    """GELU in tanh's form: x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return x * _sigmoid(x, _CDF_TANH)


def gelu_tanh_and_slope(x: Any) -> Any:
    """GELU in tanh's form, and its derivative, sigmoid + x sigmoid (1 - sigmoid) logit'."""
    square = ct.minimum(x * x, _FARTHEST)
    away = ct.exp2(-ct.abs(x * (_CDF_TANH[0] * square + _CDF_TANH[1])), flush_to_zero=True)
    larger = tiles.reciprocal(1.0 + away)  # of sigmoid and 1 - sigmoid, of which the smaller must not cancel
    smaller = away * larger
    sigmoid = ct.where(x < 0, smaller, larger)
    logit_slope = 3 * _LOGIT_TANH[0] * square + _LOGIT_TANH[1]
    return x * sigmoid, sigmoid + x * (larger * smaller * logit_slope)


def relu_gradient(dy: Any, x: Any) -> Any:
    """The gradient of ReLU's argument x, which may be its result instead; where x is NaN, dy, as PyTorch has it."""
    return ct.where(x <= 0.0, 0.0, dy)


def silu_gradient(dy: Any, x: Any) -> Any:
    """The gradient of SiLU's argument."""
    return dy * silu_and_slope(x)[1]


def gelu_gradient(dy: Any, x: Any) -> Any:
    """The gradient of GELU's argument."""
    return dy * gelu_and_slope(x)[1]


def gelu_tanh_gradient(dy: Any, x: Any) -> Any:
    """The gradient of the argument of GELU in tanh's form."""
    return dy * gelu_tanh_and_slope(x)[1]


def _sigmoid(x: Any, coefficients: Any) -> Any:
    """1 / (1 + 2 ** (x p(x²))), for a polynomial p."""
    square = x * x
    power = coefficients[0]
    for coefficient in ct.static_iter(coefficients[1:]):
        power = power * square + coefficient
    return tiles.reciprocal(1.0 + ct.exp2(x * power, flush_to_zero=True))
