"""Attention, backward: two passes over the tiles of scores, one for each side, with every sum in a fixed order.

With weights w = softmax of scores, which the log-sum-exp of each row brings back, and do the output's gradient,

    dv = w.T @ do,    dscores = w * (do @ v.T - delta),    dq = dscores @ k * scaling,    dk = dscores.T @ q * scaling

where delta, the sum of do * output over each row, comes first. A block of the one pass owns a tile of keys, goes over
the queries that see it, in all heads that share it, and has dk and dv; a block of the other owns a tile of queries and
has dq. No sum is shared among blocks, so none needs atomics; the price is that scores are made twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym_cutile import attention_tiles as at
from tilegym_cutile.attention_config import KeysConfig, keys_heuristic, queries_heuristic, tile_columns
from tilegym_cutile.reductions import sum_rows
from tilegym_cutile.runtime import launch, target_of
from tilegym_cutile.tiles import LOG2E, Rows
from tilegym_cutile.wide import fits_tma, widened

if TYPE_CHECKING:
    from torch import Tensor

    from tilegym_cutile.attention import Attention


@ct.kernel
def attention_delta(
    dout: Rows,
    out: Rows,
    lse: Rows,
    sinks: tuple[Rows, ...],
    delta: Rows,
    dsinks: tuple[Rows, ...],
    M: ct.Constant[int],
    D: ct.Constant[int],
) -> None:
    """One block: the sums of dout * out over M rows of one head, and what they add to the gradient of its sink.

    dout, out: (B, H, S, D') with D' <= D, lse, delta: (B, H, S); sinks: none or (H,), dsinks: (B * tiles of S, H).
    """
    heads, queries = out.shape[1], out.shape[2]
    across = ct.cdiv(queries, M)
    tile, batch, head = ct.bid(0) % across, ct.bid(0) // across // heads, ct.bid(0) // across % heads
    products = ct.astype(at.load(dout, batch, head, tile, M, D), ct.float32) * at.load(out, batch, head, tile, M, D)
    sums = ct.sum(products, axis=1)
    ct.store(delta, (batch, head, tile), sums.reshape((1, 1, M)))
    if len(sinks):
        logit = ct.astype(ct.gather(sinks[0], head), ct.float32)
        inside = tile * M + ct.arange(M, dtype=ct.int32) < queries
        weights = ct.exp2((logit - at.load_row(lse, batch, head, tile, M)) * LOG2E)
        total = ct.sum(ct.where(inside & (sums != 0.0), -weights * sums, 0.0), axis=0)
        ct.scatter(dsinks[0], (batch * across + tile, head), total)


@ct.kernel
def attention_backward_keys(  # noqa: C901 - its branches are chosen when it is compiled
    q: ct.Array,
    k: ct.Array,
    v: ct.Array,
    second: tuple[ct.Array, ...],
    start_at: tuple[ct.Array, ...],
    dout: ct.Array,
    lse: ct.Array,
    delta: ct.Array,
    dk: tuple[ct.Array, ...],
    dv: tuple[ct.Array, ...],
    dsecond: tuple[ct.Array, ...],
    group: int,
    scaling: float,
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
    """One block: the gradients of N keys, values or both of one head, over tiles of M queries of `group` heads.

    q, k, v, second, start_at: as the forward had them, dout: (B, H, S, D'), lse, delta: (B, H, S), dk, dv: none or as k
    and v; dsecond: none or, beside dk, what each head adds to the second pair's keys: (Hk, B, Sk, P'), float32.
    """
    kv_heads, queries, keys = k.shape[1], dout.shape[2], k.shape[2]
    across = ct.cdiv(keys, N)
    key_tile, batch, kv_head = ct.bid(0) % across, ct.bid(0) // across // kv_heads, ct.bid(0) // across % kv_heads
    key = key_tile * N + ct.arange(N, dtype=ct.int32)[:, None]
    mask = (at.first_position(start_at), left, right)
    transform = at.score_function(inner, SCALED, CAPPED, ct.float32 if PRECISELY else q.dtype)
    k_tile, v_tile = at.load(k, batch, kv_head, key_tile, N, D), at.load(v, batch, kv_head, key_tile, N, D)
    if len(second):
        second_tile = at.load(second[1], batch, 0, key_tile, N, P)

    def visit(tile: Any, edge: bool, dk_sum: Any, dv_sum: Any, dsecond_sum: Any, head: Any) -> Any:
        q_tile = at.load(q, batch, head, tile, M, D, LATENCY)
        products = at.mma(k_tile, q_tile.transpose(), at.zeros(N, M))
        if len(second):
            other_tile = at.load(second[0], batch, head, tile, M, P, LATENCY)
            products = at.mma(second_tile, other_tile.transpose(), products)
        scores = transform(products)
        exponents = scores * outer - at.load_row(lse, batch, head, tile, M)[None, :] * LOG2E
        weights = ct.exp2(exponents, flush_to_zero=True)
        if edge:
            query = tile * M + ct.arange(M, dtype=ct.int32)[None, :]
            weights = ct.where(at.visible(query, key, keys, mask, ENDS), weights, 0.0)
        dout_tile = at.load(dout, batch, head, tile, M, D, LATENCY)
        if len(dv):
            dv_sum = at.mma(ct.astype(weights, dout_tile.dtype), dout_tile, dv_sum)
        if len(dk):
            dweights = at.mma(v_tile, dout_tile.transpose(), at.zeros(N, M))
            dscores = weights * (dweights - at.load_row(delta, batch, head, tile, M)[None, :])
            rounded = ct.astype(at.through_tanh(dscores, scores, CAPPED), q_tile.dtype)
            dk_sum = at.mma(rounded, q_tile, dk_sum)
            if len(dsecond):
                dsecond_sum = at.mma(rounded, other_tile, dsecond_sum)
        return dk_sum, dv_sum, dsecond_sum, head

    last = min(key_tile * N + N, keys) - 1
    query_tiles = at.range_of_queries(key_tile * N, last, queries, mask, ENDS, M)
    dk_sum, dv_sum = at.zeros(N, D) if len(dk) else 0.0, at.zeros(N, D) if len(dv) else 0.0
    dsecond_sum = at.zeros(N, P) if len(dsecond) else 0.0
    for member in range(group):
        sums = dk_sum, dv_sum, dsecond_sum, kv_head * group + member
        dk_sum, dv_sum, dsecond_sum, _ = at.over(visit, query_tiles, ENDS[1], ONE_LOOP, sums)
    for array in ct.static_iter(dk):
        at.store(array, batch, kv_head, key_tile, dk_sum * scaling)
    for array in ct.static_iter(dv):
        at.store(array, batch, kv_head, key_tile, dv_sum)
    for array in ct.static_iter(dsecond):
        at.store(array, kv_head, batch, key_tile, dsecond_sum * scaling)


@ct.kernel
def attention_backward_queries(
    q: ct.Array,
    k: ct.Array,
    v: ct.Array,
    second: tuple[ct.Array, ...],
    start_at: tuple[ct.Array, ...],
    dout: ct.Array,
    lse: ct.Array,
    delta: ct.Array,
    dq: ct.Array,
    dsecond: tuple[ct.Array, ...],
    group: int,
    scaling: float,
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
    """One block: the gradients of M queries of one head, over tiles of N keys.

    Arrays as in `attention_backward_keys`; dq: as q, dsecond: none, or as the second pair's queries.
    """
    heads, queries, keys = dout.shape[1], dout.shape[2], k.shape[2]
    across = ct.cdiv(queries, M)
    query_tile = across - 1 - ct.bid(0) % across
    batch, head = ct.bid(0) // across // heads, ct.bid(0) // across % heads
    query = query_tile * M + ct.arange(M, dtype=ct.int32)[:, None]
    mask = (at.first_position(start_at), left, right)
    transform = at.score_function(inner, SCALED, CAPPED, ct.float32 if PRECISELY else q.dtype)
    q_tile, dout_tile = at.load(q, batch, head, query_tile, M, D), at.load(dout, batch, head, query_tile, M, D)
    if len(second):
        second_tile = at.load(second[0], batch, head, query_tile, M, P)
    lse_row = at.load_row(lse, batch, head, query_tile, M)[:, None] * LOG2E
    delta_row = at.load_row(delta, batch, head, query_tile, M)[:, None]

    def visit(tile: Any, edge: bool, dq_sum: Any, dsecond_sum: Any) -> Any:
        k_tile = at.load(k, batch, head // group, tile, N, D, LATENCY)
        products = at.mma(q_tile, k_tile.transpose(), at.zeros(M, N))
        if len(second):
            other_tile = at.load(second[1], batch, 0, tile, N, P, LATENCY)
            products = at.mma(second_tile, other_tile.transpose(), products)
        scores = transform(products)
        weights = ct.exp2(scores * outer - lse_row, flush_to_zero=True)
        if edge:
            key = tile * N + ct.arange(N, dtype=ct.int32)[None, :]
            weights = ct.where(at.visible(query, key, keys, mask, ENDS), weights, 0.0)
        dweights = at.mma(dout_tile, at.load_transposed(v, batch, head // group, tile, D, N, LATENCY), at.zeros(M, N))
        dscores = weights * (dweights - delta_row)
        rounded = ct.astype(at.through_tanh(dscores, scores, CAPPED), k_tile.dtype)
        if len(second):
            dsecond_sum = at.mma(rounded, other_tile, dsecond_sum)
        return at.mma(rounded, k_tile, dq_sum), dsecond_sum

    last = min(query_tile * M + M, queries) - 1
    key_tiles = at.range_of_keys(query_tile * M, last, keys, mask, ENDS, N)
    sums = at.zeros(M, D), at.zeros(M, P) if len(second) else 0.0
    dq_sum, dsecond_sum = at.over(visit, key_tiles, ENDS[0], ONE_LOOP, sums)
    at.store(dq, batch, head, query_tile, dq_sum * scaling)
    for array in ct.static_iter(dsecond):
        at.store(array, batch, head, query_tile, dsecond_sum * scaling)


@ct.kernel
def attention_sum_heads(partials: Rows, total: Rows, N: ct.Constant[int], P: ct.Constant[int]) -> None:
    """One block: N keys of one batch. partials: (Hk, B, Sk, P'), of which total: (B, 1, Sk, P') is the sum over Hk."""
    across = ct.cdiv(total.shape[2], N)
    tile, batch = ct.bid(0) % across, ct.bid(0) // across
    sums = at.zeros(N, P)
    for head in range(partials.shape[0]):
        sums += at.load(partials, head, batch, tile, N, P)
    at.store(total, batch, 0, tile, sums)


_keys_of_any_size = widened(attention_backward_keys)
_queries_of_any_size = widened(attention_backward_queries)


def gradients(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    of: Attention,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v and, if there is one, of the second pair; None for those not in `needs`.

    Arguments as `attention.attend` took and filled them; dout: (B, H, S, D), of any strides.
    """
    of_queries, of_keys = (q, *(of.second or ())[:1]), (k, v, *(of.second or ())[1:])
    make = torch.empty_like if q.numel() and k.numel() else torch.zeros_like
    for_queries = tuple(make(one) for one in of_queries) if needs[0] or any(needs[3:4]) else ()
    for_keys = tuple(make(one) for one in of_keys) if any(needs[1:3]) or any(needs[4:5]) else ()
    fill_gradients(dout, q, k, v, out, lse, of, for_queries, for_keys)
    dq, *dq_second = for_queries or (None,) * len(of_queries)
    dk, dv, *dk_second = for_keys or (None,) * len(of_keys)
    return dq, dk, dv, *dq_second, *dk_second


def fill_gradients(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    of: Attention,
    for_queries: tuple[Tensor, ...],
    for_keys: tuple[Tensor, ...],
    *,
    sinks: bool = False,
) -> Tensor | None:
    """Fill dq, and that of the second pair's queries; dk, dv, and that of its keys. What is not wanted is left out.

    Arguments as `attention.attend` took and filled them; dout: (B, H, S, D), of any strides. Returns the gradient of
    the sinks if `sinks` wants it.
    """
    batch, heads, queries, size = out.shape
    kv_heads, keys = k.shape[1], k.shape[2]
    if out.numel() == 0 or keys == 0:
        return torch.zeros_like(of.sinks) if sinks and of.sinks is not None else None
    delta, dsinks = _delta(dout, out, lse, of, sinks=sinks)
    second, _, start_at = of.optional
    arrays = (q, k, v, second, start_at, dout, lse, delta)
    numbers = (heads // kv_heads, of.scaling, *of.factors, *of.window)
    what = (tile_columns(size), of.columns, q.dtype, target_of(q))
    columns, scores = (tile_columns(size), of.columns), (of.ends, *of.transform)
    if for_keys:
        for_k = keys_heuristic(batch * kv_heads * keys, queries, *what)
        _fill_for_keys(arrays, for_keys, (*numbers, *for_k.constants(*columns), *scores), for_k)
    if for_queries:
        dq, *dsecond = for_queries
        for_q = queries_heuristic(batch * heads * queries, keys, *what)
        grid = (batch * heads * -(-queries // for_q.queries),)
        kernel = attention_backward_queries if fits_tma(q, k, v, dout, dq, *second) else _queries_of_any_size
        args = (*arrays, dq, tuple(dsecond), *numbers, *for_q.constants(*columns), *scores)
        launch(kernel, grid, args, hints=for_q.hints)
    return dsinks


def _fill_for_keys(
    arrays: tuple[Any, ...],
    into: tuple[Tensor, ...],
    numbers: tuple[Any, ...],
    config: KeysConfig,
) -> None:
    """Fill dk, dv and, if it is there, the gradient of the second pair's keys. numbers: all that are no arrays."""
    q, k, v, second, _, dout, _, _ = arrays
    dk, dv, *dsecond = into
    batch, kv_heads, keys, _ = k.shape
    partials = tuple(_partials(one, kv_heads) for one in dsecond)
    kernel = attention_backward_keys if fits_tma(q, k, v, dout, dk, dv, *second) else _keys_of_any_size
    wanted = (((dk,), (), partials), ((), (dv,), ())) if config.apart else (((dk,), (dv,), partials),)
    for some in wanted:
        grid = (batch * kv_heads * -(-keys // config.keys),)
        launch(kernel, grid, (*arrays, *some, *numbers), hints=config.hints)
    for partial, total in zip(partials, dsecond, strict=True):
        columns = tile_columns(total.shape[3])
        launch(attention_sum_heads, (batch * -(-keys // 64),), (partial, total, 64, columns))


def _delta(dout: Tensor, out: Tensor, lse: Tensor, of: Attention, *, sinks: bool) -> tuple[Tensor, Tensor | None]:
    """The sums of dout * out over rows, and the gradient of the sinks if it is wanted."""
    batch, heads, queries, size = out.shape
    delta, columns = torch.empty_like(lse), tile_columns(size)
    rows = min(64, 8192 // columns)
    blocks = batch * -(-queries // rows)
    wanted = (of.sinks,) if sinks and of.sinks is not None else ()
    partials = tuple(torch.empty(blocks, heads, dtype=torch.float32, device=out.device) for _ in wanted)
    launch(attention_delta, (blocks * heads,), (dout, out, lse, wanted, delta, partials, rows, columns))
    return delta, next(iter(sum_rows(partials, wanted)), None)


def _partials(total: Tensor, kv_heads: int) -> Tensor:
    """What each head of keys adds to total: (B, 1, Sk, P)."""
    batch, _, keys, columns = total.shape
    return torch.empty(kv_heads, batch, keys, columns, dtype=torch.float32, device=total.device)
