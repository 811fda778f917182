"""Attention: softmax of masked scores times values, in one pass over the keys.

The one core of all attention ops. What differs is data: a window's ends, a soft cap, sinks, a second pair of arrays
whose products are added to the scores. Backward: `attention_backward.py`; tile code of both: `attention_tiles.py`;
configurations: `attention_config.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import cuda.tile as ct
import torch

from tilegym_cutile import attention_tiles as at
from tilegym_cutile import soft_caps, tiles
from tilegym_cutile.attention_config import forward_heuristic, tile_columns
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import launch, optional, target_of
from tilegym_cutile.wide import fits_tma, widened

if TYPE_CHECKING:
    from torch import Tensor


@ct.kernel
def attention_forward(
    q: ct.Array,
    k: ct.Array,
    v: ct.Array,
    second: tuple[ct.Array, ...],
    sinks: tuple[ct.Array, ...],
    start_at: tuple[ct.Array, ...],
    out: ct.Array,
    lse: tuple[ct.Array, ...],
    group: int,
    inner: float,
    outer: float,
    left: int,
    right: int,
    M: ct.Constant[int],
    N: ct.Constant[int],
    D: ct.Constant[int],
    P: ct.Constant[int],
    LATENCY: ct.Constant[int],
    ONE_LOOP: ct.Constant[bool],
    ENDS: ct.Constant[tuple[bool, bool]],
    SCALED: ct.Constant[bool],
    CAPPED: ct.Constant[bool],
    PRECISELY: ct.Constant[bool],
) -> None:
    """One block: M queries of one head.

    q: (B, H, S, D') or (B, Hk, H / Hk, S, D'), k, v: (B, Hk, Sk, D'), second: none or like q and like k with one head,
    of up to P columns; sinks: none or (H,), start_at: none or (1,), out: (B, H, S, D'), lse: none or (B, H, S).
    group = H / Hk, D' <= D. Blocks whose queries see most keys, where it goes by position, come first.
    """
    heads, queries, keys = out.shape[1], out.shape[2], k.shape[2]
    across = ct.cdiv(queries, M)
    query_tile = across - 1 - ct.bid(0) % across
    batch, head = ct.bid(0) // across // heads, ct.bid(0) // across % heads
    query = query_tile * M + ct.arange(M, dtype=ct.int32)[:, None]
    mask = (at.first_position(start_at), left, right)
    transform = at.score_function(inner, SCALED, CAPPED, ct.float32 if PRECISELY else q.dtype)
    q_tile = at.load(q, batch, head, query_tile, M, D)
    if len(second):
        second_tile = at.load(second[0], batch, head, query_tile, M, P)

    def visit(tile: Any, edge: bool, peak: Any, total: Any, acc: Any) -> Any:
        products = at.mma(q_tile, at.load_transposed(k, batch, head // group, tile, D, N, LATENCY), at.zeros(M, N))
        if len(second):
            products = at.mma(second_tile, at.load_transposed(second[1], batch, 0, tile, P, N, LATENCY), products)
        scores = transform(products)
        if edge:
            key = tile * N + ct.arange(N, dtype=ct.int32)[None, :]
            scores = ct.where(at.visible(query, key, keys, mask, ENDS), scores, -math.inf)
        peak, total, weights, decay = at.joined(scores, outer, peak, total)
        v_tile = at.load(v, batch, head // group, tile, N, D, LATENCY)
        return peak, total, at.mma(ct.astype(weights, v_tile.dtype), v_tile, acc * decay)

    last = min(query_tile * M + M, queries) - 1
    key_tiles = at.range_of_keys(query_tile * M, last, keys, mask, ENDS, N)
    peak, total, acc = at.over(visit, key_tiles, ENDS[0], ONE_LOOP, (*at.initial(sinks, head, M), at.zeros(M, D)))
    at.store(out, batch, head, query_tile, acc * ct.where(total == 0.0, 0.0, tiles.reciprocal(total)))
    for array in ct.static_iter(lse):
        natural = (peak + ct.log2(total)) * at.LN2
        ct.store(array, (batch, head, query_tile), natural.reshape((1, 1, M)))


_forward_of_any_size = widened(attention_forward)
_SEEN_TOGETHER: Final = 64
"""Queries of a tile, which see so many more keys than one of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """What tells one attention op from another; the fields as the op's contract has them."""

    scaling: float
    left: int | None = None
    """Query i, at position p = i + start, sees the keys p - left, ..., p + right; None: there is no such end."""
    right: int | None = None
    start: int = 0
    start_at: Tensor | None = None
    """One element that is added to `start`."""
    soft_cap: float | None = None
    sinks: Tensor | None = None
    """(H,)."""
    second: tuple[Tensor, Tensor] | None = None
    """(B, H, S, Dp) and (B, 1, Sk, Dp), whose products are added to those of q and k."""

    @property
    def ends(self) -> tuple[bool, bool]:
        """Which ends the window has."""
        return self.left is not None, self.right is not None

    def seen(self, keys: int) -> int:
        """How many of so many keys the queries of a tile see at most, about."""
        if self.left is None or self.right is None:
            return keys
        return max(1, min(keys, self.left + self.right + _SEEN_TOGETHER))

    @property
    def window(self) -> tuple[int, int]:
        """The numbers left and right, as if the first query stood at 0; sums of them have 32 bits."""
        left, right = (self.left or 0) - self.start, (self.right or 0) + self.start
        return max(-at.FARTHEST, min(left, at.FARTHEST)), max(-at.FARTHEST, min(right, at.FARTHEST))

    @property
    def factors(self) -> tuple[float, float]:
        """What products are multiplied by to be scores, and scores to be powers of two, which must be positive."""
        if soft_caps.is_felt(self.soft_cap):
            return soft_caps.factors(self.scaling, self.soft_cap)
        return (1.0, self.scaling * tiles.LOG2E) if self.scaling > 0 else (self.scaling * tiles.LOG2E, 1.0)

    @property
    def capped(self) -> bool:
        """Whether there is a soft cap that any finite score could feel."""
        return soft_caps.is_felt(self.soft_cap)

    @property
    def transform(self) -> tuple[bool, bool, bool]:
        """Whether products have to be multiplied to be scores, whether scores are their tanh, and precisely so."""
        return not self.scaling > 0, self.capped, soft_caps.is_precise(self.soft_cap)

    @property
    def columns(self) -> int:
        """Columns of a tile of the second pair."""
        return 0 if self.second is None else next_power_of_2(self.second[0].shape[-1])

    @property
    def optional(self) -> tuple[tuple[Tensor, ...], ...]:
        """The arrays that may be absent, in tuples: second, sinks, start_at."""
        start_at = () if self.start_at is None else (self.start_at.as_strided((1,), (1,)),)
        return self.second or (), optional(self.sinks), start_at


def attended(q: Tensor, k: Tensor, v: Tensor, of: Attention) -> Tensor:
    """The output, like q: (B, H, S, D), from k, v: (B, Hk, Sk, D)."""
    out = _new_output(q, k)
    attend(q, k, v, out, of)
    return out


def attended_with_lse(q: Tensor, k: Tensor, v: Tensor, of: Attention) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, the log-sum-exp of each row of scores: (B, H, S), float32."""
    out, lse = _new_output(q, k), torch.empty(*q.shape[:3], dtype=torch.float32, device=q.device)
    attend(q, k, v, out, of, lse)
    return out, lse


def _new_output(q: Tensor, k: Tensor) -> Tensor:
    """An output like q for `attend` to fill; without keys, all zeros."""
    return torch.zeros_like(q) if k.shape[2] == 0 else torch.empty_like(q)


def attend(q: Tensor, k: Tensor, v: Tensor, out: Tensor, of: Attention, lse: Tensor | None = None) -> None:
    """Fill out, and lse if it is given: the natural log-sum-exp of each row of scores. Without keys, leave both alone.

    q: (B, H, S, D) or (B, Hk, H / Hk, S, D), k, v: (B, Hk, Sk, D), out: (B, H, S, D), lse: (B, H, S), all of any
    strides.
    """
    batch, heads, queries, size = out.shape
    keys = k.shape[2]
    if out.numel() == 0 or keys == 0:
        return
    columns, rows, causal = tile_columns(size), batch * heads * queries, of.ends != (False, False)
    what = (rows, of.seen(keys), columns, of.columns, q.dtype, target_of(q))
    config = forward_heuristic(*what, causal=causal, capped=of.capped)
    second, sinks, start_at = of.optional
    arrays = (q, k, v, second, sinks, start_at, out, optional(lse))
    numbers = (heads // k.shape[1], *of.factors, *of.window)
    constants = (*config.constants(columns, of.columns), of.ends, *of.transform)
    grid = (batch * heads * -(-queries // config.queries),)
    kernel = attention_forward if fits_tma(q, k, v, out, *second) else _forward_of_any_size
    launch(kernel, grid, (*arrays, *numbers, *constants), hints=config.hints)
