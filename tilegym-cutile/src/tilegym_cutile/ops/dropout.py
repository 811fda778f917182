"""Dropout, its mask computed from the seed in forward and backward alike."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import philox, tiles
from tilegym_cutile.rows import as_split_rows, rows_per_block
from tilegym_cutile.runtime import launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
    from torch import Tensor


@ct.kernel
def dropout_tiles(
    arrays: tuple[Rows, ...],
    N: ct.ScalarInt64[int],
    seed: ct.ScalarInt64[int],
    last_dropped: ct.ScalarInt64[int],
    scale: float,
    COUNTERS: ct.Constant[int],
    RAGGED: ct.Constant[bool],
) -> None:
    """One block: COUNTERS counters of Philox, and the four elements of each.

    arrays: (1, *inner) of N elements, the one to read and the one to write, or the one to change in place. Words up to
    last_dropped, which has 32 bits, mean that an element is dropped.
    """
    counter = tiles.row_numbers(ct.bid(0), COUNTERS)
    element = counter * 4 + ct.arange(4, dtype=ct.int64)[None, :]
    mask = tiles.inside(element, N, RAGGED)
    kept = philox.words(counter, seed) > ct.astype(last_dropped, ct.uint32)
    x, y = arrays[0], arrays[-1]
    scaled = tiles.load(x, 0, element, mask, inner=x.ndim - 1) * scale
    tiles.store(y, 0, element, ct.where(kept, scaled, 0.0), mask, inner=y.ndim - 1)


@register_impl("dropout", backend="cutile")
def dropout(x: Tensor, seed: int, p: float, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/dropout.py`; 0 < p, since the contract answers for p = 0."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n = x.numel()
    if n == 0:
        return out
    counters = -(-n // 4)
    block = rows_per_block(counters, 4, 2048, target_of(x).num_sms)
    arrays = tuple(as_split_rows(tensor, x.dim())[0] for tensor in ((x,) if out is x else (x, out)))
    last_dropped = math.ceil(p * 2**32) - 1  # u >= p, as integers
    scale = 1 / (1 - p) if p < 1 else 0.0
    args = (arrays, n, seed, last_dropped, scale, block, n % (4 * block) != 0)
    launch(dropout_tiles, (-(-counters // block),), args)
    return out


@register_backward("dropout", backend="cutile")
def dropout_backward(grad_output: Tensor, *, seed: int, p: float) -> Tensor:
    """The gradient of x from that of the output: dropped and scaled alike; of its shape and dtype, contiguous."""
    return dropout(grad_output, seed, p)
