"""Elementwise kernels: how tensors are seen, and shared out."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile.elementwise import forward_kernel, in_step, plan
from tilegym_cutile.runtime import ARCHITECTURES


def test_tensors_that_lie_alike_are_one_row():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert [tuple(array.shape) for array in in_step(x, torch.empty_like(x))] == [(1, 120), (1, 120)]


def test_rows_of_whole_tiles_are_left_as_they_are():
    x, y = torch.empty(3, 4096), torch.empty(4096, 3).t()
    assert [id(array) for array in in_step(y, x)] == [id(y), id(x)]


def test_tensors_that_lie_otherwise_are_walked_by_rows():
    x = torch.randn(6, 4).t()
    arrays = in_step(x, x.contiguous())
    assert [array.stride() for array in arrays] == [(1, 4), (6, 1)]
    torch.testing.assert_close(arrays[0], arrays[1])


def test_rows_are_as_long_as_all_tensors_allow():
    left, right = torch.randn(3, 8, 5).chunk(2, dim=1)
    arrays = in_step(left, right, torch.empty(left.shape))
    assert [array.stride() for array in arrays] == [(40, 1), (40, 1), (20, 1)]
    assert torch.equal(arrays[1].flatten(), right.flatten())


def test_halves_that_lie_alike_with_gaps_between_are_walked_by_rows():
    left, right = torch.randn(3, 8).chunk(2, dim=1)
    assert [tuple(array.shape) for array in in_step(left, right)] == [(3, 4), (3, 4)]


def test_a_number_without_dimensions_is_one_row():
    assert [tuple(array.shape) for array in in_step(torch.ones(()), torch.ones(()))] == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("shape", "tile", "blocks"),
    [
        ((8192, 14336), (1, 2048), 57344),
        ((1, 4096), (1, 512), 8),
        ((256, 4096), (1, 2048), 512),
        ((100_000, 3), (256, 4), 391),
        ((1, 1), (1, 1), 1),
    ],
)
def test_small_tensors_are_spread_over_the_device(shape, tile, blocks):
    kernel = forward_kernel("tiles", lambda x, _: x)
    made = plan(kernel, *shape, 2, 2048, ARCHITECTURES["sm_90"])
    assert made.kernel is kernel
    assert (made.grid, made.sizes[3:5]) == ((1, blocks, 1), tile)
