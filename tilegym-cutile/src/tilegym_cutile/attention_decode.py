"""Attention of one query over many keys: what the decode ops share, with the keys shared out among blocks.

What limits it is the reading of keys and values. So the query heads that share a key and value head make up one tile,
for all of which each key is read once; and where there are fewer such tiles than the device has multiprocessors, each
block takes one of several splits of the keys, and `splits.py` puts together what they found. Keys are the rows of both
matrix products, (keys, D) @ (D, heads) and (D, keys) @ (keys, heads): heads, which may be few, are the side of a tensor
core's product that may be short, and keys and values go to it as they lie in shared memory. Tensor cores do not
multiply float32, and what stands in for them spills registers: there a block has one query head, and needs no product.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct
import torch

from tilegym_cutile import soft_caps
from tilegym_cutile.attention_tiles import LOWEST, exponent_of_sink, hint, tanh
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Hints, Target, launch, optional, target_of
from tilegym_cutile.splits import reduce_splits
from tilegym_cutile.tiles import LOG2E
from tilegym_cutile.tuning import tuned
from tilegym_cutile.wide import fits_tma, widened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_FARTHEST: Final = 2**30
"""The window of a query without one, beyond the position of any."""
_MOST_SPLITS: Final = 65535
"""CUDA's limit to the second dimension of a grid."""


@ct.kernel
def decode_tiles(
    q: ct.Array,
    k: ct.Array,
    v: tuple[ct.Array, ...],
    second: tuple[ct.Array, ...],
    sinks: tuple[ct.Array, ...],
    start: tuple[ct.Array, ...],
    out: ct.Array,
    lse: tuple[ct.Array, ...],
    position: int,
    window: int,
    splits: int,
    factors: tuple[float, float],
    CAPPED: ct.Constant[tuple[bool, bool]],
    KEYS: ct.Constant[int],
    HEADS: ct.Constant[int],
    SIZE: ct.Constant[int],
    SECOND: ct.Constant[int],
    LATENCY: ct.Constant[int],
) -> None:
    """One block: one split of the keys, for HEADS query heads of those that share a key and value head, in one batch.

    q: (B, Hk, G, D), k: (B, Hk, Sk, D), v: as k, or none where keys are values as well, second: none or (B, Hk, G, Dp)
    and (B, Hk, Sk, Dp), whose products are added to the scores, sinks: none or (Hk, G), start: none or one element,
    which is added to `position`, out: (B, Hk, G, splits, D), lse: none or (B, Hk, G, splits), base 2. The query sees
    the last `window` keys up to its position. D <= SIZE, Dp <= SECOND. CAPPED: whether scores are, and precisely so.
    """
    groups = ct.cdiv(q.shape[2], HEADS)
    group, kv_head, batch = ct.bid(0) % groups, ct.bid(0) // groups % k.shape[1], ct.bid(0) // groups // k.shape[1]
    head = (group * HEADS + ct.arange(HEADS, dtype=ct.int32))[None, :]
    begin, end = _visible(position, window, start, k.shape[2])
    first, last = _tiles_of_split(begin, end, splits, KEYS)
    query = _rows(q, batch, kv_head, group, HEADS, SIZE, allow_tma=False).transpose()
    if len(second):
        query_2 = _rows(second[0], batch, kv_head, group, HEADS, SECOND, allow_tma=False).transpose()
    sink = _sink(sinks, kv_head, head)
    highest = ct.maximum(sink, ct.full((1, HEADS), LOWEST, dtype=ct.float32))
    total = ct.zeros((KEYS, HEADS), dtype=ct.float32)
    result = ct.zeros((SIZE, HEADS), dtype=ct.float32)
    for tile in range(first, last):
        keys = _rows(k, batch, kv_head, tile, KEYS, SIZE, LATENCY)
        products = _mma(keys, query, ct.zeros((KEYS, HEADS), dtype=ct.float32))
        if len(second):
            products = _mma(_rows(second[1], batch, kv_head, tile, KEYS, SECOND, LATENCY), query_2, products)
        scores = products * factors[0]
        if CAPPED[0]:
            scores = tanh(scores, ct.float32 if CAPPED[1] else q.dtype) * factors[1]
        key = tile * KEYS + ct.arange(KEYS, dtype=ct.int32)[:, None]
        scores = ct.where((key >= begin) & (key < end), scores, -math.inf)
        higher = ct.maximum(highest, ct.max(scores, axis=0, keepdims=True))
        weights = ct.exp2(scores - higher, flush_to_zero=True)
        decay = ct.exp2(highest - higher, flush_to_zero=True)
        highest, total = higher, total * decay + weights
        values = _rows(v[0], batch, kv_head, tile, KEYS, SIZE, LATENCY) if len(v) else keys
        result = _mma(values.transpose(), ct.astype(weights, values.dtype), result * decay)
    divisor = ct.sum(total, axis=0, keepdims=True) + ct.exp2(sink - highest, flush_to_zero=True)
    result *= 1.0 / ct.where(divisor == 0.0, 1.0, divisor)
    column = ct.arange(SIZE, dtype=ct.int32)[:, None]
    place, mask = (batch, kv_head, head, ct.bid(1)), head < q.shape[2]
    inside = mask & (column < q.shape[3])
    ct.scatter(out, (*place, column), ct.astype(result, out.dtype), mask=inside, check_bounds=False)
    for array in ct.static_iter(lse):
        ct.scatter(array, place, highest + ct.log2(divisor), mask=mask, check_bounds=False)


def _mma(x: Any, y: Any, acc: Any) -> Any:
    """The product x @ y + acc; of one column, as always with float32, it is a sum of what lies in registers."""
    if y.shape[1] == 1:
        terms = ct.astype(x, ct.float32) * ct.astype(y, ct.float32).reshape((1, y.shape[0]))
        return acc + ct.sum(terms, axis=1, keepdims=True)
    return ct.mma(x, y, acc)


def _visible(position: Any, window: Any, start: Any, keys: Any) -> Any:
    """The first key that the query sees, and the one after the last."""
    for array in ct.static_iter(start):
        shift = ct.astype(ct.gather(array, 0), ct.int64)
        position = position + ct.astype(ct.minimum(ct.maximum(shift, -_FARTHEST), _FARTHEST - 1), ct.int32)
    return max(0, position + 1 - window), max(0, min(keys, position + 1))


def _tiles_of_split(begin: Any, end: Any, splits: Any, KEYS: int) -> Any:
    """The first tile of keys of the block's split, and the one after the last: an even share of those that are seen."""
    first, last = begin // KEYS, ct.cdiv(end, KEYS)
    each = ct.cdiv(max(0, last - first), splits)
    first = first + ct.bid(1) * each
    return first, min(first + each, last)


def _rows(
    array: Any,
    batch: Any,
    kv_head: Any,
    tile: Any,
    ROWS: int,
    COLUMNS: int,
    LATENCY: int = 0,
    *,
    allow_tma: bool = True,
) -> Any:
    """A tile (ROWS, COLUMNS) of array: (B, Hk, G or Sk, D), with zeros beyond its end."""
    index, shape, padding = (batch, kv_head, tile, 0), (1, 1, ROWS, COLUMNS), ct.PaddingMode.ZERO
    found = ct.load(array, index, shape, padding_mode=padding, allow_tma=allow_tma, latency=hint(LATENCY))
    return found.reshape((ROWS, COLUMNS))


def _sink(sinks: Any, kv_head: Any, head: Any) -> Any:
    """The sink of each head, as an exponent of two: (1, HEADS); -inf where there is none, or in another split."""
    found = ct.full(head.shape, -math.inf, dtype=ct.float32)
    for array in ct.static_iter(sinks):
        logit = ct.gather(array, (kv_head, head), mask=head < array.shape[1], check_bounds=False)
        found = ct.where(ct.bid(1) == 0, exponent_of_sink(logit), found)
    return found


decode_tiles_of_any_size = widened(decode_tiles)


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """How the work is shared out."""

    splits: int
    """Splits of the keys."""
    keys: int
    """Keys per tile."""
    heads: int
    """Query heads per tile."""
    latency: int = 0
    """The hint of the loads in the loop, from 1 to 10: how far ahead they are; 0 leaves it to the compiler."""
    hints: Hints = Hints()  # noqa: RUF009 - frozen


def _columns(size: int) -> int:
    """Columns of a tile of keys: at least as many as the tensor cores of sm_90 take rows, for values are turned."""
    return max(64, next_power_of_2(size))


def search_space(
    batches: int, group: int, keys: int, size: int, second: int, dtype: torch.dtype, target: Target
) -> Iterator[Config]:
    """The configurations worth timing."""
    default = heuristic(batches, group, keys, size, second, dtype, target)
    if default.heads == 1:
        kinds = [(default.keys, 1, 8, 0), (default.keys, 2, 4, 0), (2 * default.keys, 2, 4, 0)]
    elif _columns(size) > 256:
        kinds = [(64, 1, 4, 0), (64, 1, 4, 1), (64, 1, 8, 0), (64, 1, 8, 2), (128, 1, 8, 0), (32, 1, 4, 10)]
    elif default.keys == 64:
        kinds = [(64, 1, 4, 0), (64, 2, 4, 0), (64, 1, 8, 0)]
    else:
        kinds = [(64, 1, 4, 0), (64, 2, 4, 0), (64, 4, 4, 0), (128, 1, 4, 0), (128, 2, 4, 0), (128, 1, 8, 0)]
    few = sorted({1, 2, 4, 8, 16, default.splits, 2 * default.splits})
    for (tile, occupancy, warps, latency), splits in itertools.product(kinds, few):
        if splits <= max(1, -(-keys // tile)):
            hints = Hints(occupancy=occupancy, num_worker_warps=warps)
            yield Config(splits=splits, keys=tile, heads=default.heads, latency=latency, hints=hints)


@tuned("attention_decode", space=search_space, bucketed=("batches", "keys"))
def heuristic(
    batches: int, group: int, keys: int, size: int, second: int, dtype: torch.dtype, target: Target
) -> Config:
    """The configuration for `batches` times `group` query heads, each group over the same `keys`.

    Args:
        batches: B * Hk.
        group: G.
        keys: how many the query sees at most.
        size: D.
        second: Dp, or 0.
        dtype: of keys.
        target: the device.
    """
    columns = _columns(size)
    if dtype is torch.float32:
        heads, tile = 1, max(16, 2048 // columns)
    else:
        heads = min(max(8, next_power_of_2(group)), _most_heads(columns, target))
        tile = 64 if columns > 128 or heads > 16 else 128
    blocks = batches * -(-group // heads)
    tile_bytes = tile * (2 * size + second) * dtype.itemsize
    result_bytes = 2 * heads * columns * torch.float32.itemsize
    splits = _splits(blocks, -(-keys // tile), tile_bytes, result_bytes, target.num_sms)
    if columns > 256:
        few = target.capability[0] == 9 and heads <= 16
        hints = Hints(occupancy=1, num_worker_warps=4 if few else 8)
    else:
        together = dtype is torch.float32 or blocks * splits > target.num_sms
        hints = Hints(occupancy=2 if together else 1, num_worker_warps=4)
    return Config(splits=splits, keys=tile, heads=heads, hints=hints)


def _most_heads(columns: int, target: Target) -> int:
    """How many heads' sums a block can hold: the more there are, the more a key that was read is used."""
    if columns <= 256:
        return 32
    return 64 if target.capability[0] == 9 else 16


_BLOCK_BYTES: Final = 32 * 1024
"""What a multiprocessor could read in the time that it takes to begin and end a block, about a microsecond."""
_REDUCTION_BYTES: Final = 3 * _BLOCK_BYTES
"""Likewise of a second kernel."""


def _splits(blocks: int, tiles_of_keys: int, tile_bytes: int, result_bytes: int, num_sms: int) -> int:
    """How many splits leave the busiest multiprocessor the least to do; the fewest of those as good."""

    def cost(splits: int) -> int:
        one = -(-tiles_of_keys // splits) * tile_bytes + _BLOCK_BYTES + (result_bytes if splits > 1 else 0)
        return -(-blocks * splits // num_sms) * one + (_REDUCTION_BYTES if splits > 1 else 0)

    return min(range(1, max(1, min(tiles_of_keys, 2 * num_sms)) + 1), key=cost)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What a decode op does with products of queries and keys; the fields as contracts have them."""

    scaling: float
    soft_cap: float | None = None
    position: int = 0
    """The query sees keys up to this one."""
    start: Tensor | None = None
    """One element, which is added to `position`."""
    window: int = 0
    """It sees only so many; 0: all."""
    sinks: Tensor | None = None
    """(Hk, G)."""
    second: tuple[Tensor, Tensor] | None = None
    """(B, Hk, G, Dp) and (B, Hk, Sk, Dp)."""

    @property
    def factors(self) -> tuple[float, float]:
        """What products are multiplied by, before tanh if there is one, and what tanh is multiplied by."""
        if soft_caps.is_felt(self.soft_cap):
            return soft_caps.factors(self.scaling, self.soft_cap)
        return self.scaling * LOG2E, 1.0

    @property
    def capped(self) -> tuple[bool, bool]:
        """Whether the soft cap changes anything, and whether it takes a precise tanh."""
        return soft_caps.is_felt(self.soft_cap), soft_caps.is_precise(self.soft_cap)

    def seen(self, keys: int) -> int:
        """How many keys the query sees at most."""
        upper = keys if self.start is not None else min(keys, self.position + 1)
        return max(0, min(upper, self.window) if self.window else upper)


def decode(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    out: Tensor,
    scores: Scores,
    *,
    lse: Tensor | None = None,
    kv_len_per_split: int | None = None,
) -> None:
    """Write `out`, and `lse` in base 2, if given: both contiguous.

    Args:
        q: its elements are (B, Hk, G, D).
        k: (B, Hk, Sk, D).
        v: as k; None: keys are values as well.
        out: as many elements as q.
        scores: how scores are made.
        lse: B * Hk * G elements, float32.
        kv_len_per_split: how many keys a split has, rounded up to tiles, and to what a grid can hold of them; None: the
            heuristic chooses.
    """
    if out.numel() == 0:
        return
    batch, kv_heads, keys, size = k.shape
    q = q.view(batch, kv_heads, -1, size)
    group = q.shape[2]
    seen = scores.seen(keys)
    second = 0 if scores.second is None else scores.second[1].shape[3]
    config = heuristic(batch * kv_heads, group, seen, size, second, k.dtype, target_of(q))
    splits = config.splits if kv_len_per_split is None else -(-seen // kv_len_per_split)
    splits = min(splits, -(-seen // config.keys), _MOST_SPLITS)
    if splits == 1:
        one_lse = None if lse is None else lse.view(batch, kv_heads, group, 1)
        _launch(q, k, v, scores, (out.view(batch, kv_heads, group, 1, size), one_lse), config)
        return
    partials = out.new_empty(batch, kv_heads, group, splits, size, dtype=torch.float32)
    part_lse = out.new_empty(batch, kv_heads, group, splits, dtype=torch.float32)
    if splits:
        _launch(q, k, v, scores, (partials, part_lse), config)
    heads = kv_heads * group
    whole = out.view(batch, heads, size), None if lse is None else lse.view(batch, heads)
    reduce_splits(partials.view(batch, heads, splits, size), part_lse.view(batch, heads, splits), *whole)


def _launch(
    q: Tensor, k: Tensor, v: Tensor | None, scores: Scores, results: tuple[Tensor, Tensor | None], config: Config
) -> None:
    """Run the kernel. q: (B, Hk, G, D), results: (B, Hk, G, splits, D) and, or None, (B, Hk, G, splits)."""
    batch, kv_heads, group, size = q.shape
    out, lse = results
    splits = out.shape[3]
    values, second, keys = optional(v), scores.second or (), k.shape[2]
    past = max(0, scores.position - (keys - 1))  # of a query past the last key, so much of the window holds no key
    window = max(0, min(scores.window - past, _FARTHEST)) if scores.window else _FARTHEST
    position = max(-1, scores.position - past)
    columns = _columns(size), max(16, next_power_of_2(second[1].shape[3])) if second else 0
    kernel = decode_tiles if fits_tma(q, k, *values, *second[1:], out) else decode_tiles_of_any_size
    arrays = (q, k, values, second, optional(scores.sinks), optional(scores.start), out, optional(lse))
    constants = (scores.capped, config.keys, config.heads, *columns, config.latency)
    grid = (batch * kv_heads * -(-group // config.heads), splits)
    launch(kernel, grid, (*arrays, position, window, splits, scores.factors, *constants), hints=config.hints)
