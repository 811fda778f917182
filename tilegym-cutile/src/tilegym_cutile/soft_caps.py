"""Soft caps of scores, `cap * tanh(score / cap)`, as the kernels of attention take them."""

from __future__ import annotations

from typing import Final, TypeGuard

from tilegym_cutile.tiles import LOG2E

_HUGE: Final = 1e30
"""Float32 still holds the reciprocal."""
_COARSE: Final = 1024.0
"""Up to this soft cap a tanh with an absolute error of 2^-22 is good enough for 16-bit results."""


def is_felt(soft_cap: float | None) -> TypeGuard[float]:
    """Whether there is a soft cap that any finite score could feel."""
    return soft_cap is not None and soft_cap < _HUGE


def is_precise(soft_cap: float | None) -> bool:
    """Whether it takes a tanh of float32, whatever the dtype."""
    return is_felt(soft_cap) and soft_cap > _COARSE


def factors(scaling: float, soft_cap: float) -> tuple[float, float]:
    """What products are multiplied by before tanh, NaN if scaling is, and what tanh is, for powers of two."""
    return max(min(scaling / soft_cap, _HUGE), -_HUGE), soft_cap * LOG2E
