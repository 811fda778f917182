"""Views of any layout as rows: no copy, and as few dimensions as the strides allow."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile.rows import (
    RowConfig,
    as_rows,
    as_split_rows,
    divisor,
    fits_registers,
    grid,
    next_power_of_2,
    previous_power_of_2,
    ragged,
    rows_per_block,
    vector,
    whole_row_configs,
)
from tilegym_cutile.runtime import Hints

X = torch.arange(2 * 3 * 4 * 5.0).view(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("tensor", "shape"),
    [
        (X, (24, 5)),
        (X[0, 0, 0], (1, 5)),
        (X[..., :3], (24, 3)),
        (X[..., ::2], (24, 3)),
        (X[:, :, 1:], (6, 3, 5)),
        (X.transpose(0, 1), (3, 2, 4, 5)),
        (X.permute(0, 1, 3, 2), (6, 5, 4)),
        (X[:1].expand(7, 3, 4, 5), (7, 12, 5)),
        (X[0, 0, 0].expand(7, 3, 5), (21, 5)),
        (X[:, :1, :1, :1].transpose(0, 3), (1, 2)),
        (X[:, :1, :1, :1], (2, 1)),
    ],
)
def test_rows_are_a_view_of_the_fewest_dimensions(tensor, shape):
    rows = as_rows(tensor)
    assert rows.shape == shape
    assert rows.data_ptr() == tensor.data_ptr()
    assert torch.equal(rows.reshape(-1), tensor.reshape(-1))


@pytest.mark.parametrize(
    ("tensor", "columns", "shape", "inner"),
    [
        (X, 2, (6, 20), 1),
        (X, 4, (1, 120), 1),
        (X.contiguous(memory_format=torch.channels_last), 3, (2, 3, 20), 2),
        (X.permute(1, 2, 3, 0), 2, (12, 5, 2), 2),
    ],
)
def test_columns_may_be_several_dimensions(tensor, columns, shape, inner):
    rows, found = as_split_rows(tensor, columns)
    assert (rows.shape, found) == (shape, inner)
    assert rows.data_ptr() == tensor.data_ptr()
    assert torch.equal(rows.reshape(-1), tensor.reshape(-1))


def test_next_power_of_2():
    assert [next_power_of_2(n) for n in (1, 2, 3, 257, 1024, 1025)] == [1, 2, 4, 512, 1024, 2048]


@pytest.mark.parametrize(
    ("m", "columns", "rows"),
    [(100_000, 1024, 4), (100_000, 4096, 1), (100_000, 16384, 1), (100_000, 1, 1024), (132, 1024, 1), (200, 1024, 2)],
)
def test_short_rows_share_a_block_while_every_sm_has_one(m, columns, rows):
    assert rows_per_block(m, columns, 4096, num_sms=132) == rows


def test_ragged_tells_rows_and_columns_apart():
    config = RowConfig(chunked=False, rows=4, columns=16)
    assert [config.ragged(*shape) for shape in [(8, 32), (9, 32), (8, 31), (9, 31)]] == [
        (False, False),
        (True, False),
        (False, True),
        (True, True),
    ]


@pytest.mark.parametrize(
    ("elements", "warps", "occupancy", "fits"),
    [
        (16384, 4, None, True),
        (32768, 4, None, False),  # 256 of a thread's 255 registers
        (8192, 4, 4, True),  # 64 of 128
        (8192, 4, 8, False),  # 64 of 64: nothing to work with
        (8192, 8, 8, False),  # 32 of 32
        (4096, 8, 4, True),
    ],
)
def test_a_tile_fits_in_registers_that_as_many_blocks_share(elements, warps, occupancy, fits):
    assert fits_registers(elements, warps, occupancy) == fits


def test_whole_rows_are_tried_with_tiles_that_fit_and_every_sm_busy():
    found = {(one.rows, one.hints.num_worker_warps, one.hints.occupancy) for one in whole_row_configs(256, 1024, 132)}
    assert found == {(rows, warps, o) for rows in (1, 2) for warps in (4, 8) for o in (None, 2, 4, 8)} - {
        (1, 8, 8),
        (2, 8, 8),
    }
    assert {one.rows for one in whole_row_configs(100_000, 4096, 132, tiles=2)} == {1, 2}


def test_powers_of_two_around_a_number():
    assert [(next_power_of_2(n), previous_power_of_2(n)) for n in (1, 2, 3, 1000)] == [
        (1, 1),
        (2, 2),
        (4, 2),
        (1024, 512),
    ]


@pytest.mark.parametrize(
    ("array", "elements"),
    [
        (torch.empty(3, 24), 4),
        (torch.empty(3, 24, dtype=torch.bfloat16), 8),
        (torch.empty(3, 25), 1),
        (torch.empty(3, 24)[:, 1:], 1),
        (torch.empty(3, 24)[:, ::2], 1),
        (torch.empty(3, 24)[:, :17], 4),
        (torch.empty(24, 3).T, 1),
        (torch.empty(2, 3, 24)[:, 1:], 4),
    ],
)
def test_aligned_rows_are_loaded_as_vectors(array, elements):
    assert vector(array) == elements
    assert vector(array, torch.empty(4, 9, dtype=array.dtype)) == 1


def test_the_end_of_ragged_rows_is_known_to_divide():
    assert [ragged(n, 1024) for n in (1024, 4096, 1000, 5120 - 512, 257, 1032)] == [0, 0, 8, 16, 1, 8]


def test_each_warp_has_rows_of_its_own_where_there_are_enough():
    def tile(rows, columns, elements, warps=None):
        config = RowConfig(chunked=False, rows=rows, columns=columns, hints=Hints(num_worker_warps=warps))
        return config.tile(elements)

    assert [tile(4, 1024, 8), tile(4, 1024, 4), tile(4, 1024, 1), tile(32, 128, 8)] == [
        (4, 4, 256),
        (4, 8, 128),
        (4, 32, 32),
        (32, 1, 128),
    ]
    assert [tile(2, 1024, 8), tile(4, 1024, 8, warps=8)] == [(2, 1, 1024), (4, 1, 1024)]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 14, 4097, 2**20, 2**31 - 1])
def test_a_divisor_divides_as_integers_do(count):
    same, factor, shift = divisor(count)
    numbers = [0, 1, count - 1, count, 2 * count - 1, 5 * count, 2**31 // count * count - 1, 2**31 - 1]
    below = [number for number in numbers if number < 2**31]
    assert same == count
    assert factor < 2**32  # as the kernel takes it
    assert [(number * factor // 2**32 + number) >> shift for number in below] == [number // count for number in below]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (1, ((1, 1, 1), False)),
        (65535, ((1, 65535, 1), False)),
        (114688, ((1, 57344, 2), False)),
        (2**24, ((1, 2**15, 2**9), False)),
        (131071, ((1, 43691, 3), True)),
    ],
)
def test_a_grid_has_no_more_blocks_than_asked_for_if_it_can_be(blocks, expected):
    assert grid(blocks) == expected
