"""Views of any layout as rows: no copy, and as few dimensions as the strides allow."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile.rows import RowConfig, as_rows, as_split_rows, next_power_of_2, rows_per_block

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
