"""What the attention kernels share, forward and backward: which tiles of keys or queries meet, scores, masks.

Tile code, called from kernels only. Scores live in three steps. `products` are q @ k.T, plus those of a second pair if
there is one; `scores` are what softmax is taken of, up to a positive factor `outer` that makes them powers of two:
weights are exp2(scores * outer - peak). A query i, at position i + start, sees the keys from position - left to
position + right; a mask is `(start, left, right)`, with two constants, ENDS, that say which of the two ends there are.
"""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct

from tilegym_cutile.tiles import LOG2E, reciprocal

LN2 = math.log(2)
FARTHEST = 2**29
"""Further apart than any query and key: a larger distance is this."""
LOWEST = -1e38
"""Where a running maximum begins: finite, so that differences to it are no NaN."""


def load(x: Any, batch: Any, head: Any, tile: Any, ROWS: int, COLUMNS: int, LATENCY: int = 0) -> Any:
    """A tile (ROWS, COLUMNS) of x: (B, H, S, D) or (B, Hk, G, S, D), with zeros beyond the end."""
    index: Any = (batch, head, tile, 0)
    shape: Any = (1, 1, ROWS, COLUMNS)
    if x.ndim == 5:
        index, shape = (batch, head // x.shape[2], head % x.shape[2], tile, 0), (1, *shape)
    found = ct.load(x, index, shape, padding_mode=ct.PaddingMode.ZERO, latency=hint(LATENCY))
    return operand(found).reshape((ROWS, COLUMNS))


def load_transposed(x: Any, batch: Any, head: Any, tile: Any, ROWS: int, COLUMNS: int, LATENCY: int = 0) -> Any:
    """A tile of x: (B, H, S, D), turned: (ROWS, COLUMNS) of D and S."""
    shape, order = (1, 1, ROWS, COLUMNS), (0, 1, 3, 2)
    padding = ct.PaddingMode.ZERO
    turned = ct.load(x, (batch, head, 0, tile), shape, order=order, padding_mode=padding, latency=hint(LATENCY))
    return operand(turned).reshape((ROWS, COLUMNS))


def hint(LATENCY: int) -> Any:
    """A load's latency hint: 0 leaves it to the compiler."""
    return LATENCY if LATENCY else None  # noqa: FURB110 - in tile code `or` makes truth values


def operand(tile: Any) -> Any:
    """The same for products: float8 as float16, which holds all of its numbers, and weights beside them better."""
    return ct.astype(tile, ct.float16) if tile.dtype == ct.float8_e5m2 else tile


def mma(x: Any, y: Any, acc: Any) -> Any:
    """The sum acc + x @ y. In float32 it takes three products of tf32: each factor is a tf32 and a rest."""
    if x.dtype != ct.float32:
        return ct.mma(x, y, acc)
    x_high, y_high = ct.astype(x, ct.tfloat32), ct.astype(y, ct.tfloat32)
    x_low = ct.astype(x - ct.astype(x_high, ct.float32), ct.tfloat32)
    y_low = ct.astype(y - ct.astype(y_high, ct.float32), ct.tfloat32)
    return ct.mma(x_high, y_high, ct.mma(x_high, y_low, ct.mma(x_low, y_high, acc)))


def zeros(ROWS: int, COLUMNS: int) -> Any:
    """Where sums of products begin."""
    return ct.zeros((ROWS, COLUMNS), dtype=ct.float32)


def load_row(x: Any, batch: Any, head: Any, tile: Any, ROWS: int) -> Any:
    """A tile (ROWS,) of x: (B, H, S), with zeros beyond the end."""
    return ct.load(x, (batch, head, tile), (1, 1, ROWS), padding_mode=ct.PaddingMode.ZERO).reshape((ROWS,))


def store(x: Any, batch: Any, head: Any, tile: Any, value: Any) -> None:
    """Write a tile (ROWS, COLUMNS), rounded to x's dtype, where it is within x: (B, H, S, D) or (B, Hk, G, S, D)."""
    rounded = ct.astype(value, x.dtype)
    if x.ndim == 5:
        index = (batch, head // x.shape[2], head % x.shape[2], tile, 0)
        ct.store(x, index, rounded.reshape((1, 1, 1, *value.shape)))
    else:
        ct.store(x, (batch, head, tile, 0), rounded.reshape((1, 1, *value.shape)))


def first_position(start_at: Any) -> Any:
    """Where the first query stands: at 0, or where the one element of an array says, if there is one."""
    start = 0
    for array in ct.static_iter(start_at):
        start = ct.astype(max(-FARTHEST, min(ct.gather(array, 0), FARTHEST)), ct.int32)
    return start


def range_of_keys(first: Any, last: Any, keys: Any, mask: Any, ENDS: tuple[bool, bool], N: int) -> Any:
    """The tiles of N keys that queries from `first` to `last` (in it) see.

    Returns:
        (begin, whole, partial, end): tiles from `whole` to `partial` all of these queries see wholly, those from
        `begin` to `whole` and from `partial` to `end` in part.
    """
    start, left, right = mask
    LEFT, RIGHT = ENDS
    seen_end, whole_end = keys, keys
    if RIGHT:
        seen_end = min(keys, max(0, last + start + right + 1))
        whole_end = min(keys, max(0, first + start + right + 1))
    seen_begin, whole_begin = 0, 0
    if LEFT:
        seen_begin = min(seen_end, max(0, first + start - left))
        whole_begin = min(seen_end, max(0, last + start - left))
    begin, end = seen_begin // N, ct.cdiv(seen_end, N)
    whole = min(ct.cdiv(whole_begin, N), end)
    return begin, whole, max(whole, whole_end // N), end


def over(visit: Any, tiles: Any, LEFT: bool, ONE_LOOP: bool, sums: Any) -> Any:
    """Have `visit(tile, edge, *sums)` make sums of sums, tile by tile; only where `edge` is true it needs a mask.

    tiles: as `range_of_keys` returns them; LEFT: whether any may come before `whole`. With ONE_LOOP, `edge` is known
    when the kernel runs, and loads go on from one kind of tile to the next; without, each kind has a loop of its own.
    """
    begin, whole, partial, end = tiles
    if ONE_LOOP:
        for tile in range(begin, end):
            sums = visit(tile, (tile < whole) | (tile >= partial), *sums)
        return sums
    if LEFT:
        for tile in range(begin, whole):
            sums = visit(tile, True, *sums)
    for tile in range(whole, partial):
        sums = visit(tile, False, *sums)
    for tile in range(partial, end):
        sums = visit(tile, True, *sums)
    return sums


def range_of_queries(first: Any, last: Any, queries: Any, mask: Any, ENDS: tuple[bool, bool], M: int) -> Any:
    """The tiles of M queries that see keys from `first` to `last` (in it), as `range_of_keys` returns them."""
    start, left, right = mask
    return range_of_keys(first, last, queries, (-start, right, left), (ENDS[1], ENDS[0]), M)


def visible(query: Any, key: Any, keys: Any, mask: Any, ENDS: tuple[bool, bool]) -> Any:
    """Whether queries see keys, by their numbers."""
    start, left, right = mask
    LEFT, RIGHT = ENDS
    seen = key < keys
    if LEFT:
        seen = seen & (key >= query + (start - left))
    if RIGHT:
        seen = seen & (key <= query + (start + right))
    return seen


def score_function(inner: Any, SCALED: bool, CAPPED: bool, dtype: Any) -> Any:
    """What makes scores of products: nothing, a multiplication with `inner`, or that and a tanh."""
    if CAPPED:
        return lambda products: tanh(products * inner, dtype)
    if SCALED:
        return lambda products: products * inner
    return lambda products: products


def tanh(x: Any, dtype: Any) -> Any:
    """As precise as results of `dtype` deserve: for shorter ones than float32 by two cheap instructions."""
    if dtype == ct.float32:
        return ct.tanh(x)
    return 1.0 - 2.0 * reciprocal(1.0 + ct.exp2(x * (2.0 * LOG2E), flush_to_zero=True))


def through_tanh(gradient: Any, scores: Any, CAPPED: bool) -> Any:
    """From the gradient of scores to that of what they are the tanh of, if they are."""
    return gradient * (1.0 - scores * scores) if CAPPED else gradient


def exponent_of_sink(logit: Any) -> Any:
    """A sink as an exponent of two, finite if the sink is."""
    logit = ct.astype(logit, ct.float32)
    return ct.where(logit < math.inf, ct.minimum(logit, -LOWEST), logit) * LOG2E


def initial(sinks: Any, head: Any, M: int) -> Any:
    """The running maximum of logits, in powers of two, and the sum of weights, of M rows that have met no key yet."""
    peak, total = ct.full((M, 1), LOWEST, dtype=ct.float32), ct.zeros((M, 1), dtype=ct.float32)
    for array in ct.static_iter(sinks):
        logit = exponent_of_sink(ct.gather(array, head))
        peak = ct.maximum(peak, logit)
        total = ct.exp2(logit - peak)
    return peak, total


def joined(scores: Any, outer: Any, peak: Any, total: Any) -> Any:
    """One step of online softmax: the new maximum and sum, the weights, and what earlier sums are multiplied by."""
    higher = ct.maximum(peak, ct.max(scores, axis=1, keepdims=True) * outer)
    weights = ct.exp2(scores * outer - higher, flush_to_zero=True)
    decay = ct.exp2(peak - higher, flush_to_zero=True)
    return higher, total * decay + ct.sum(weights, axis=1, keepdims=True), weights, decay
