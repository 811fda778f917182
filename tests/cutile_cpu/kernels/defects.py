"""Kernels with one defect each, in a line marked `# wrong`, and beside each its repaired twin."""

from __future__ import annotations

import inspect

import cuda.tile as ct

Int = ct.Constant[int]


def wrong_line(kernel: ct.kernel) -> int:
    """The number of the marked line."""
    lines, first = inspect.getsourcelines(kernel._pyfunc)
    (offset,) = (i for i, line in enumerate(lines) if line.rstrip().endswith("# wrong"))
    return first + offset


@ct.kernel
def relies_on_padding(x, out, n: Int):
    ct.store(out, (0,), ct.sum(ct.load(x, (0,), (n,))))


@ct.kernel
def pads_with_zero(x, out, n: Int):
    ct.store(out, (0,), ct.sum(ct.load(x, (0,), (n,), padding_mode=ct.PaddingMode.ZERO)))


@ct.kernel
def skips_the_last_tile(x, out, n: Int):
    for i in range(x.shape[0] // n):
        ct.store(out, (i,), ct.load(x, (i,), (n,), padding_mode=ct.PaddingMode.ZERO))


@ct.kernel
def writes_every_tile(x, out, n: Int):
    for i in range(ct.cdiv(x.shape[0], n)):
        ct.store(out, (i,), ct.load(x, (i,), (n,), padding_mode=ct.PaddingMode.ZERO))


@ct.kernel
def crosses_unchecked(x, out, n: Int):
    tile = ct.load(x, (ct.bid(0),), (n,), check_bounds=False)  # wrong
    ct.store(out, (ct.bid(0),), tile)


@ct.kernel
def crosses_checked(x, out, n: Int):
    ct.store(out, (ct.bid(0),), ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO))


@ct.kernel
def stores_across_unchecked(x, out, n: Int):
    tile = ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0),), tile, check_bounds=False)  # wrong


@ct.kernel
def gathers_outside_unchecked(x, out, n: Int):
    index = ct.arange(n, dtype=ct.int32)
    tile = ct.gather(x, index, check_bounds=False)  # wrong
    ct.scatter(out, index, tile)


@ct.kernel
def gathers_outside_checked(x, out, n: Int):
    index = ct.arange(n, dtype=ct.int32)
    ct.scatter(out, index, ct.gather(x, index))


@ct.kernel
def loads_a_tile_outside(x, out, n: Int):
    tile = ct.load(x, (ct.bid(0) + 1,), (n,), padding_mode=ct.PaddingMode.ZERO)  # wrong
    ct.store(out, (ct.bid(0),), tile)


@ct.kernel
def loads_a_tile_inside(x, out, n: Int):
    ct.store(out, (ct.bid(0),), ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO))


@ct.kernel
def stores_a_tile_outside(x, out, n: Int):
    tile = ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0) + 1,), tile)  # wrong


@ct.kernel
def two_lanes_one_address(index, out, n: Int):
    where = ct.load(index, (0,), (n,))
    ct.scatter(out, where, where + 1)  # wrong


@ct.kernel
def two_lanes_added_atomically(index, out, n: Int):
    where = ct.load(index, (0,), (n,))
    ct.atomic_add(out, where, where + 1)


@ct.kernel
def every_block_writes_the_total(x, out, n: Int):
    ct.store(out, (0,), ct.sum(ct.load(x, (ct.bid(0),), (n,))))  # wrong


@ct.kernel
def every_block_adds_to_the_total(x, out, n: Int):
    ct.atomic_add(out, 0, ct.sum(ct.load(x, (ct.bid(0),), (n,))))


@ct.kernel
def reads_what_a_later_block_writes(x, n: Int):
    """Shift left by one tile, in place."""
    after = ct.load(x, (ct.bid(0) + 1,), (n,))
    ct.store(x, (ct.bid(0),), after)  # wrong


@ct.kernel
def reads_another_array(x, out, n: Int):
    ct.store(out, (ct.bid(0),), ct.load(x, (ct.bid(0) + 1,), (n,)))


@ct.kernel
def reads_what_an_earlier_block_wrote(partial, out, n: Int):
    ct.store(partial, (ct.bid(0),), ct.bid(0))
    if ct.bid(0) == n - 1:
        total = ct.sum(ct.load(partial, (0,), (n,)))  # wrong
        ct.store(out, (0,), total)


@ct.kernel
def counts_without_release(partial, counter, out, n: Int):
    """The counter tells who is last, but a relaxed update orders nothing."""
    ct.store(partial, (ct.bid(0),), ct.bid(0))
    arrived = ct.atomic_add(counter, 0, 1, memory_order=ct.MemoryOrder.RELAXED)
    if arrived == n - 1:
        total = ct.sum(ct.load(partial, (0,), (n,)))  # wrong
        ct.store(out, (0,), total)


@ct.kernel
def counts_with_release(partial, counter, out, n: Int):
    ct.store(partial, (ct.bid(0),), ct.bid(0))
    arrived = ct.atomic_add(counter, 0, 1, memory_order=ct.MemoryOrder.ACQ_REL)
    if arrived == n - 1:
        ct.store(out, (0,), ct.sum(ct.load(partial, (0,), (n,))))


@ct.kernel
def mixes_plain_and_atomic(out):
    if ct.bid(0) == 0:
        ct.store(out, (0,), 5)
    else:
        ct.atomic_add(out, 0, 1)  # wrong


@ct.kernel
def only_atomic(out):
    if ct.bid(0) == 0:
        ct.atomic_add(out, 0, 5)
    else:
        ct.atomic_add(out, 0, 1)


@ct.kernel
def doubles(x, out, n: Int):
    """Wrong if `x` and `out` overlap."""
    tile = ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0),), tile * 2)  # wrong


@ct.kernel
def doubles_in_place(x, n: Int):
    ct.store(x, (ct.bid(0),), ct.load(x, (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO) * 2)


@ct.kernel
def waits_for_a_later_block(flag, out):
    if ct.bid(0) == 0:
        while ct.atomic_add(flag, 0, 0) == 0:  # wrong
            pass
        ct.store(out, (0,), 1)
    else:
        ct.atomic_xchg(flag, 0, 1)


@ct.kernel
def waits_for_an_earlier_block(flag, out):
    if ct.bid(0) == 1:
        while ct.atomic_add(flag, 0, 0) == 0:
            pass
        ct.store(out, (0,), 1)
    else:
        ct.atomic_xchg(flag, 0, 1)
