"""Philox4x32-10, random numbers as a function of a counter and a key: tile code, called from kernels only.

Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import Any

import cuda.tile as ct

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)


def words(counter: Any, seed: Any) -> Any:
    """The four words of each counter: (n, 4), uint32; from counters (n, 1) and a seed, the key, both of 64 bits."""
    none = ct.zeros(counter.shape, dtype=ct.uint32)
    w0, w1, w2, w3 = philox((*_halves(counter), none, none), _halves(seed))
    return ct.cat((ct.cat((w0, w1), 1), ct.cat((w2, w3), 1)), 1)


def philox(counter: Any, key: Any) -> Any:
    """Four words, from a counter of four words and a key of two: all uint32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in ct.static_iter(range(10)):
        low_0, high_0 = _halves(ct.astype(c0, ct.uint64) * _MULTIPLIERS[0])
        low_1, high_1 = _halves(ct.astype(c2, ct.uint64) * _MULTIPLIERS[1])
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = k0 + _STEPS[0], k1 + _STEPS[1]
    return c0, c1, c2, c3


def _halves(number: Any) -> Any:
    """The low and the high 32 bits of 64."""
    return ct.astype(number, ct.uint32), ct.astype(number >> 32, ct.uint32)
