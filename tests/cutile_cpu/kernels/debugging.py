# ruff: noqa: PT009, T201 - kernels assert and print with functions of these names
"""Printing and asserting."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def print_values(x, counts, n: Int):
    tile = ct.load(x, (0,), (n,))
    ct.printf("block %d of 100%%: %5.2f|%-6.1e|%a\n", ct.bid(0), tile, ct.sum(tile), ct.max(tile))
    numbers = ct.load(counts, (0,), (2,))
    ct.printf("%llu %x\n", numbers, numbers)
    print(f"sum={ct.sum(tile):.1f}", numbers, sep="; ")


@ct.kernel
def small_enough(x, out, limit: Int, n: Int):
    tile = ct.load(x, (ct.bid(0),), (n,))
    ct.assert_(tile < limit, "too large")  # wrong
    ct.store(out, (ct.bid(0),), tile)


@case
def an_assertion_that_holds() -> Case:
    x = torch.arange(8.0)
    return Case(small_enough, (2,), (x, blank(8), 8, 4), {1: x})
