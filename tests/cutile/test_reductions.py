"""Sums over rows: right however rows are shared out, and shared out where columns alone leave SMs without a block."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile.reductions import sum_rows
from tilegym_cutile.runtime import recording

everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)


@everywhere
@pytest.mark.parametrize("p", [1, 63, 700, 5000])
def test_sums(p, device):
    """Of 5000 rows blocks' sums are summed in turn, by the interpreter with its 4 SMs and by a GPU."""
    generator = torch.Generator().manual_seed(0)
    whole = torch.randn(p, 40, generator=generator).to(device)
    turned = torch.randn(40, p, generator=generator).to(device).mT
    like = [torch.empty(5, 8, dtype=torch.float32, device=device), torch.empty(40, dtype=torch.bfloat16, device=device)]
    first, second = sum_rows((whole, turned), like)
    assert (first.shape, second.dtype) == ((5, 8), torch.bfloat16)
    torch.testing.assert_close(first.flatten().double(), whole.double().sum(0), rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(second, turned.double().sum(0).bfloat16(), rtol=8e-3, atol=1e-3)
    again, _ = sum_rows((whole, turned), like)
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    ("p", "n", "grids"),
    [
        (100_000, 1024, [(32, 1, 16), (32, 1, 1)]),
        (100_000, 40_000, [(313, 1, 1)]),  # columns alone are enough
        (528, 512, [(16, 1, 1)]),  # as a norm's blocks leave: few rows
        (2**24, 1, [(1, 1, 528), (1, 1, 1)]),
    ],
)
def test_every_sm_has_its_blocks(p, n, grids):
    x = torch.empty(p, n, device="meta")
    with recording(arch="sm_90") as launches:
        (total,) = sum_rows((x,), [torch.empty(n, dtype=torch.bfloat16, device="meta")])
    assert (total.shape, total.dtype) == ((n,), torch.bfloat16)
    assert [launch.grid for launch in launches] == grids
