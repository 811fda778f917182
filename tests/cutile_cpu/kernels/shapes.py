"""Operations that move elements."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def reshape_and_permute(x, out):
    tile = ct.load(x, (0, 0), (4, 8)).reshape((2, 2, 8))
    ct.store(out, (0, 0, 0), ct.permute(tile, (2, 0, 1)))


@case
def reshaping_and_permuting() -> Case:
    x = torch.randn(4, 8)
    return Case(reshape_and_permute, (1,), (x, blank(8, 2, 2)), {1: x.reshape(2, 2, 8).permute(2, 0, 1)})


@ct.kernel
def transpose_and_cat(x, y, out):
    both = ct.cat((ct.load(x, (0, 0), (4, 8)), ct.load(y, (0, 0), (4, 8))), axis=0)
    ct.store(out, (0, 0), ct.transpose(both))


@case
def transposing_and_concatenating() -> Case:
    x, y = torch.randn(4, 8), torch.randn(4, 8)
    return Case(transpose_and_cat, (1,), (x, y, blank(8, 8)), {2: torch.cat((x, y)).T})


@ct.kernel
def outer_sum(x, y, out, n: Int):
    a, b = ct.load(x, (0,), (n,)), ct.load(y, (0,), (n,))
    ct.store(out, (0, 0), ct.broadcast_to(a[:, None], (n, n)) + ct.expand_dims(b, 0))


@case
def broadcasting() -> Case:
    x, y = torch.randn(8), torch.randn(8)
    return Case(outer_sum, (1,), (x, y, blank(8, 8), 8), {2: x[:, None] + y})


@ct.kernel
def swap_halves(x, out, n: Int):
    tile = ct.load(x, (0, 0), (4, n))
    left, right = ct.extract(tile, (0, 0), (4, n // 2)), ct.extract(tile, (0, ct.bid(0) + 1), (4, n // 2))
    ct.store(out, (0, 0), ct.insert(ct.insert(tile, (0, 0), right), (0, ct.bid(0) + 1), left))


@case
def extracting_and_inserting() -> Case:
    x = torch.randn(4, 16)
    return Case(swap_halves, (1,), (x, blank(4, 16), 16), {1: torch.cat((x[:, 8:], x[:, :8]), 1)})


@ct.kernel
def numbers(ints, floats, n: Int):
    ct.store(ints, (0,), ct.arange(n, dtype=ct.uint16, start=3, step=2))
    ct.store(floats, (0,), ct.arange(n, dtype=ct.float32))


@case
def counting() -> Case:
    ints = torch.zeros(8, dtype=torch.uint16)
    expected = torch.arange(3, 19, 2, dtype=torch.int32).to(torch.uint16)
    return Case(numbers, (1,), (ints, blank(8), 8), {0: expected, 1: torch.arange(8.0)})


@ct.kernel
def from_scalars(x, out):
    first = ct.load(x, (0,), (1,)).item()
    ct.store(out, (0, 0), ct.astile(((first, first + 1), (first * 2, ct.bid(0))), dtype=ct.float32))


@case
def a_tile_of_scalars() -> Case:
    expected = torch.tensor([[3.0, 4.0], [6.0, 0.0]])
    return Case(from_scalars, (1,), (torch.tensor([3.0]), blank(2, 2)), {1: expected})
