"""Atomic operations, with lanes and blocks that meet at one address."""

from __future__ import annotations

import cuda.tile as ct
import numpy as np
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def histogram(x, counts, n: Int):
    ct.atomic_add(counts, ct.load(x, (ct.bid(0),), (n,)), 1)


@case
def histogram_over_blocks() -> Case:
    x = torch.randint(0, 7, (256,), dtype=torch.int32)
    expected = torch.bincount(x, minlength=7).int()
    return Case(histogram, (4,), (x, torch.zeros(7, dtype=torch.int32), 64), {1: expected})


@ct.kernel
def accumulate(x, out, n: Int):
    ct.atomic_add(out, ct.arange(n, dtype=ct.int32), ct.load(x, (ct.bid(0), 0), (1, n)).reshape((n,)))


def _accumulate(dtype: torch.dtype) -> Case:
    x = torch.randint(-4, 5, (8, 16)).to(dtype)
    return Case(accumulate, (8,), (x, torch.zeros(16, dtype=dtype), 16), {1: x.float().sum(0).to(dtype)})


@case
def atomic_add_of_float32() -> Case:
    return _accumulate(torch.float32)


@case
def atomic_add_of_bfloat16() -> Case:
    return _accumulate(torch.bfloat16)


@case
def atomic_add_of_float16() -> Case:
    return _accumulate(torch.float16)


@ct.kernel
def combine(x, greatest, least, conjunction, disjunction, difference, n: Int):
    lanes = ct.arange(n, dtype=ct.int32) % 4
    tile = ct.load(x, (ct.bid(0),), (n,))
    ct.atomic_max(greatest, lanes, tile)
    ct.atomic_min(least, lanes, tile)
    ct.atomic_and(conjunction, lanes, tile)
    ct.atomic_or(disjunction, lanes, tile)
    ct.atomic_xor(difference, lanes, tile)


def _combine(dtype: type[np.integer]) -> Case:
    info, rng = np.iinfo(dtype), np.random.default_rng(4)
    x = rng.integers(info.min, info.max, 64, dtype=dtype, endpoint=True)
    lanes = x.reshape(-1, 4)
    starts = [np.full(4, value, dtype) for value in (info.min, info.max, -1 if info.min else info.max, 0, 0)]
    reductions = (np.maximum, np.minimum, np.bitwise_and, np.bitwise_or, np.bitwise_xor)
    expected = {1 + i: torch.from_numpy(f.reduce(lanes, axis=0)) for i, f in enumerate(reductions)}
    return Case(combine, (4,), (torch.from_numpy(x), *map(torch.from_numpy, starts), 16), expected)


@case
def atomic_extremes_and_bits_of_int32() -> Case:
    return _combine(np.int32)


@case
def atomic_extremes_and_bits_of_uint32() -> Case:
    return _combine(np.uint32)


@case
def atomic_extremes_and_bits_of_uint64() -> Case:
    return _combine(np.uint64)


@ct.kernel
def exchange(x, out, before, n: Int):
    lanes = ct.arange(n, dtype=ct.int32)
    ct.store(before, (0,), ct.atomic_xchg(out, lanes, ct.load(x, (0,), (n,))))


@case
def atomic_exchange_returns_what_was_there() -> Case:
    x, old = torch.randn(8), torch.randn(6)
    expected = {1: x[:6].clone(), 2: torch.cat((old, torch.zeros(2)))}
    return Case(exchange, (1,), (x, old.clone(), blank(8), 8), expected)


@ct.kernel
def claim(slots, winners, n: Int):
    """Every lane tries to claim slot 0: the first one finds it free."""
    lanes = ct.arange(n, dtype=ct.int32)
    found = ct.atomic_cas(slots, ct.zeros((n,), ct.int32), 0, lanes + 1)
    ct.store(winners, (0,), found)


@case
def compare_and_swap_lets_one_lane_win() -> Case:
    slots, winners = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    expected = {0: torch.tensor([1], dtype=torch.int32), 1: torch.tensor([0, 1, 1, 1], dtype=torch.int32)}
    return Case(claim, (1,), (slots, winners, 4), expected)


@ct.kernel
def tiles_into_one(x, total, greatest, bits, n: Int):
    view = total.tiled_view((n,))
    tile = ct.load(x, (ct.bid(0),), (n,))
    view.atomic_store_add((0,), tile)
    greatest.tiled_view((n,)).atomic_store_max((0,), tile)
    bits.tiled_view((n,)).atomic_store_xor((0,), tile)


@case
def atomic_updates_of_a_partial_tile() -> Case:
    x = torch.randint(-99, 99, (32,), dtype=torch.int32)
    rows = x.reshape(4, 8)[:, :6]
    outs = (
        torch.zeros(6, dtype=torch.int32),
        torch.full((6,), -(2**31), dtype=torch.int32),
        torch.zeros(6, dtype=torch.int32),
    )
    xor = rows[0] ^ rows[1] ^ rows[2] ^ rows[3]
    return Case(tiles_into_one, (4,), (x, *outs, 8), {1: rows.sum(0).int(), 2: rows.amax(0), 3: xor})


@ct.kernel
def last_block_sums(x, partial, counter, out, n: Int, blocks: Int):
    """Each block leaves a partial sum; the last to arrive adds them up."""
    ct.store(partial, (ct.bid(0),), ct.sum(ct.load(x, (ct.bid(0),), (n,))))
    arrived = ct.atomic_add(counter, 0, 1)
    if arrived == blocks - 1:
        ct.store(out, (0,), ct.sum(ct.load(partial, (0,), (blocks,))))


@case
def last_block_reduces() -> Case:
    x = torch.randint(-9, 9, (64,)).float()
    args = (x, blank(4), torch.zeros(1, dtype=torch.int32), blank(1), 16, 4)
    return Case(last_block_sums, (4,), args, {3: x.sum().reshape(1), 2: torch.tensor([4], dtype=torch.int32)})


@ct.kernel
def locked_append(log, length, lock):
    """A spin lock around plain loads and stores: free whenever a block asks, since blocks run one after another."""
    while ct.atomic_cas(lock, 0, 0, 1, memory_order=ct.MemoryOrder.ACQUIRE) != 0:
        pass
    end = ct.load(length, (0,), (1,)).item()
    ct.scatter(log, end, ct.bid(0))
    ct.store(length, (0,), end + 1)
    ct.atomic_xchg(lock, 0, 0, memory_order=ct.MemoryOrder.RELEASE)


@case
def a_lock_orders_plain_accesses() -> Case:
    args = (torch.zeros(5, dtype=torch.int32), torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
    expected = {0: torch.arange(5, dtype=torch.int32), 1: torch.tensor([5], dtype=torch.int32)}
    return Case(locked_append, (5,), args, expected)
