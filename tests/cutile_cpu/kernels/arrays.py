"""Loads and stores: views, padding, gathers, slices, lists and pointers."""

from __future__ import annotations

from itertools import pairwise

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def copy(x, out, m: Int, n: Int):
    tile = ct.load(x, (ct.bid(0), ct.bid(1)), (m, n), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0), ct.bid(1)), tile)


def _copy(x: torch.Tensor, out: torch.Tensor) -> Case:
    grid = -(-x.shape[0] // 8), -(-x.shape[1] // 4)
    return Case(copy, grid, (x, out, 8, 4), {1: x.clone()})


@case
def copy_of_odd_shape() -> Case:
    return _copy(torch.randn(17, 9), blank(17, 9))


@case
def copy_of_a_transposed_input() -> Case:
    return _copy(torch.randn(9, 17).T, blank(17, 9))


@case
def copy_of_an_expanded_input() -> Case:
    return _copy(torch.randn(1, 9).expand(17, 9), blank(17, 9))


@case
def copy_of_a_strided_window() -> Case:
    return _copy(torch.randn(40, 30)[3:37:2, 5:23:2], blank(9, 17).T)


@case
def copy_of_int8() -> Case:
    return _copy(torch.randint(-128, 127, (17, 9), dtype=torch.int8), torch.zeros(17, 9, dtype=torch.int8))


@case
def copy_of_uint16() -> Case:
    return _copy(torch.randint(0, 65535, (9, 9)).to(torch.uint16), torch.zeros(9, 9, dtype=torch.uint16))


def _padded(mode: ct.PaddingMode, value: float) -> Case:
    @ct.kernel
    def padded(x, out):
        ct.store(out, (0,), ct.load(x, (0,), (8,), padding_mode=mode))

    x = torch.randn(5)
    return Case(padded, (1,), (x, blank(8)), {1: torch.cat((x, torch.full((3,), value)))})


@case
def padding_with_negative_infinity() -> Case:
    return _padded(ct.PaddingMode.NEG_INF, float("-inf"))


@case
def padding_with_infinity() -> Case:
    return _padded(ct.PaddingMode.POS_INF, float("inf"))


@case
def padding_with_nan() -> Case:
    return _padded(ct.PaddingMode.NAN, float("nan"))


@case
def undetermined_padding_is_poisoned() -> Case:
    return _padded(ct.PaddingMode.UNDETERMINED, float("nan"))


@ct.kernel
def in_fortran_order(x, out):
    """x: (M, N) read as its transpose."""
    ct.store(
        out,
        (ct.bid(0), ct.bid(1)),
        ct.load(x, (ct.bid(0), ct.bid(1)), (4, 8), order="F", padding_mode=ct.PaddingMode.ZERO),
    )


@case
def loading_in_fortran_order() -> Case:
    x = torch.randn(19, 10)
    return Case(in_fortran_order, (3, 3), (x, blank(10, 19)), {1: x.T})


@ct.kernel
def windows(x, out, length: Int):
    """Overlapping windows, two elements apart."""
    view = x.tiled_view((4,), padding_mode=ct.PaddingMode.ZERO, traversal_steps=(2,))
    for i in range(view.num_tiles(0)):
        ct.store(out, (i, 0), view.load((i,)).reshape((1, 4)))


@case
def overlapping_windows() -> Case:
    x = torch.arange(9.0)
    expected = torch.cat((x, torch.zeros(3))).unfold(0, 4, 2)
    return Case(windows, (1,), (x, blank(5, 4), 9), {1: expected})


@ct.kernel
def through_tiled_view(x, out):
    source, target = x.tiled_view((4, 4), padding_mode=ct.PaddingMode.ZERO), out.tiled_view((4, 4))
    for i in range(source.num_tiles(0)):
        for j in range(source.num_tiles(1)):
            target.store((i, j), source.load((i, j)) + 1)


@case
def tiled_views() -> Case:
    x = torch.randn(6, 9)
    return Case(through_tiled_view, (1,), (x, blank(6, 9)), {1: x + 1})


@ct.kernel
def pick_rows(x, rows, out, n: Int):
    index = ct.load(rows, (0,), (n,))
    tile = ct.load_advanced_indexing(x, (index, ct.Slice(2, 8)), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (0, 0), tile)


@case
def rows_by_index() -> Case:
    x, rows = torch.randn(6, 8), torch.tensor([5, 0, 9, -1], dtype=torch.int32)
    expected = torch.zeros(4, 8)
    expected[:2, :6] = x[[5, 0], 2:]
    return Case(pick_rows, (1,), (x, rows, blank(4, 8), 4), {2: expected})


@ct.kernel
def place_columns(x, columns, out, n: Int):
    index = ct.load(columns, (0,), (n,))
    ct.store_advanced_indexing(out, (ct.Slice(1, 4), index), ct.load(x, (0, 0), (4, n)))


@case
def columns_by_index() -> Case:
    x, columns = torch.randn(4, 4), torch.tensor([6, 2, 7, 0], dtype=torch.int32)
    expected = torch.zeros(4, 7)
    expected[1:, [6, 2, 0]] = x[:3, [0, 1, 3]]
    return Case(place_columns, (1,), (x, columns, torch.zeros(4, 7), 4), {2: expected})


@ct.kernel
def gather_scatter(x, rows, columns, out, n: Int):
    i, j = ct.load(rows, (0,), (n,))[:, None], ct.load(columns, (0,), (n,))[None, :]
    found = ct.gather(x, (i, j), padding_value=7.0, mask=j != 1)
    k = ct.arange(n, dtype=ct.int32)
    ct.scatter(out, (k[:, None], k[None, :]), found)


@case
def gathering_with_a_mask() -> Case:
    x = torch.randn(5, 6)
    rows, columns = torch.tensor([4, 0, 5, -1], dtype=torch.int32), torch.tensor([0, 1, 5, 6], dtype=torch.int32)
    expected = torch.full((4, 4), 7.0)
    for a, i in enumerate(rows.tolist()):
        for b, j in enumerate(columns.tolist()):
            if 0 <= i < 5 and 0 <= j < 6 and j != 1:
                expected[a, b] = x[i, j]
    return Case(gather_scatter, (1,), (x, rows, columns, blank(4, 4), 4), {3: expected})


@ct.kernel
def gather_all_out(x, out):
    ct.store(out, (0,), ct.gather(x, ct.arange(4, dtype=ct.int32) + 100, padding_value=-1.0))


@case
def gathering_from_an_empty_array() -> Case:
    return Case(gather_all_out, (1,), (torch.zeros(0), blank(4)), {1: torch.full((4,), -1.0)})


@ct.kernel
def unchecked(x, out, n: Int):
    index = ct.arange(n, dtype=ct.int32) + ct.bid(0) * n
    ct.scatter(out, index, ct.gather(x, index, check_bounds=False) + 1, check_bounds=False)
    ct.store(out, (ct.bid(0) + 2,), ct.load(x, (ct.bid(0),), (n,), check_bounds=False), check_bounds=False)


@case
def accesses_without_bounds_checks() -> Case:
    x = torch.randn(16)
    return Case(unchecked, (2,), (x, blank(32), 8), {1: torch.cat((x + 1, x))})


@ct.kernel
def slices(x, starts, out, n: Int):
    """Rows of a ragged array, each tile cut at the end of its row."""
    first, last = ct.gather(starts, ct.bid(0)), ct.gather(starts, ct.bid(0) + 1)
    row = x.slice(axis=0, start=first, stop=last)
    total = ct.zeros((n,), ct.float32)
    for i in range(ct.num_tiles(row, axis=0, shape=(n,))):
        total += ct.load(row, (i,), (n,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0),), ct.sum(total))


@case
def ragged_rows() -> Case:
    x, starts = torch.randint(-9, 9, (20,)).float(), torch.tensor([0, 3, 3, 14, 20], dtype=torch.int32)
    expected = torch.stack([x[a:b].sum() for a, b in pairwise(starts)])
    return Case(slices, (4,), (x, starts, blank(4), 4), {2: expected})


@ct.kernel
def sum_of_list(arrays, out, n: Int):
    total = ct.zeros((n,), ct.float32)
    for i in range(len(arrays)):
        total += ct.load(arrays[i], (ct.bid(0),), (n,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, (ct.bid(0),), total)


@case
def lists_of_arrays() -> Case:
    arrays = [torch.randint(-9, 9, (n,)).float() for n in (10, 16, 9)]
    expected = torch.zeros(16)
    for array in arrays:
        expected[: array.numel()] += array
    return Case(sum_of_list, (2,), (arrays, blank(16), 8), {1: expected})


@ct.kernel
def raw_memory(x, out, before, n: Int):
    source, target = x.get_raw_memory(), out.get_raw_memory()
    lanes = ct.arange(n, dtype=ct.int32)
    tile = source.load_offset(lanes * 2, mask=lanes < 3, padding_value=-1.0)
    target.store_offset(lanes, tile, mask=lanes != 1)
    ct.store(before, (0,), target.atomic_add_offset(lanes, 10.0, mask=lanes > 1))


@case
def raw_offsets() -> Case:
    x = torch.randn(8)
    stored = torch.tensor([x[0], 99.0, x[4], -1.0])
    expected = {1: stored + torch.tensor([0.0, 0.0, 10.0, 10.0]), 2: torch.tensor([0.0, 0.0, x[4], -1.0])}
    return Case(raw_memory, (1,), (x, blank(4), blank(4), 4), expected)


@ct.kernel
def raw_without_padding(x, out, n: Int):
    lanes = ct.arange(n, dtype=ct.int32)
    tile = x.get_raw_memory().load_offset(lanes, mask=lanes < 2)
    ct.store(out, (0,), ct.where(lanes < 2, tile, 0.0))


@case
def masked_lanes_without_padding() -> Case:
    x = torch.randn(4)
    return Case(raw_without_padding, (1,), (x, blank(4), 4), {1: torch.tensor([x[0], x[1], 0.0, 0.0])})


@ct.kernel
def foreign(x, out, n):
    again = ct.Array.from_foreign(x.foreign_pointer, (n, 2), (2, 1))
    ct.store(out, (0, 0), ct.load(again, (0, 0), (4, 2)))


@case
def arrays_from_foreign_pointers() -> Case:
    x = torch.randn(8)
    return Case(foreign, (1,), (x, blank(4, 2), 4), {1: x.reshape(4, 2)})


@ct.kernel
def scalar_arrays(x, out):
    ct.store(out, (), ct.load(x, (), ()) + 1)


@case
def arrays_without_dimensions() -> Case:
    return Case(scalar_arrays, (1,), (torch.tensor(2.0), torch.tensor(0.0)), {1: torch.tensor(3.0)})


@ct.kernel
def ordered_accesses(flag, x, out):
    order, scope = ct.MemoryOrder, ct.MemoryScope.DEVICE
    ct.store(x, (0,), ct.full((4,), 5.0, ct.float32), memory_order=order.RELEASE, memory_scope=scope)
    ct.store(out, (0,), ct.load(x, (0,), (4,), memory_order=order.ACQUIRE, memory_scope=scope))


@case
def loads_and_stores_with_memory_order() -> Case:
    return Case(ordered_accesses, (1,), (torch.zeros(1), torch.zeros(4), blank(4)), {2: torch.full((4,), 5.0)})


@ct.kernel
def wide_index(x: ct.IndexedWithInt64, out, n: Int):
    rows = x.shape[0]
    ct.store(out, (0,), ct.load(x, (rows // n - 1,), (n,)))


@case
def sixty_four_bit_indices() -> Case:
    x = torch.randn(32)
    return Case(wide_index, (1,), (x, blank(8), 8), {1: x[24:]})


@ct.kernel
def promised(x, out, start, n: Int):
    first = ct.assume_divisible_by(start, 8)
    ct.store(out, (0,), ct.load(x, (first // n,), (n,)))


@case
def divisibility_promises() -> Case:
    x = torch.randn(32)
    return Case(promised, (1,), (x, blank(8), 16, 8), {1: x[16:24]})
