"""Dropout, its mask computed from the seed in forward and backward alike."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import philox, tiles
from tilegym_cutile.elementwise import TileConfig, share
from tilegym_cutile.rows import as_split_rows, grid, ragged
from tilegym_cutile.runtime import Hints, Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@ct.kernel
def dropout_tiles(
    arrays: tuple[Rows, ...],
    N: ct.ScalarInt64[int],
    seed: ct.ScalarInt64[int],
    last_dropped: ct.ScalarInt64[int],
    scale: float,
    PAIRS: ct.Constant[int],
    RAGGED: ct.Constant[int],
) -> None:
    """One block: PAIRS pairs of counters of Philox, and the four elements of each counter: 16 bytes or more at a time.

    arrays: (1, *inner) of N elements, the one to read and the one to write, or the one to change in place. Words up to
    last_dropped, which has 32 bits, mean that an element is dropped.
    """
    pair = tiles.row_numbers(tiles.block(), PAIRS)
    element = pair * 8 + ct.arange(8, dtype=ct.int64)[None, :]
    mask = tiles.inside(element, N, RAGGED)
    words = ct.cat((philox.words(pair * 2, seed), philox.words(pair * 2 + 1, seed)), 1)
    kept = words > ct.astype(last_dropped, ct.uint32)
    x, y = arrays[0], arrays[-1]
    scaled = tiles.load(x, 0, element, mask, inner=x.ndim - 1) * scale
    tiles.store(y, 0, element, ct.where(kept, scaled, 0.0), mask, inner=y.ndim - 1)


def search_space(n: int, itemsize: int, target: Target) -> Iterator[TileConfig]:
    """What is worth trying: as for elementwise kernels, and more or fewer blocks at once, since these compute a lot."""
    most = 8 * share(1, n, itemsize, target)
    for elements, warps, occupancy in itertools.product((512, 1024, 2048, 4096), (None, 8), (None, 4, 8, 12)):
        if elements <= most and (occupancy or 1) * (warps or 4) <= 64:
            yield TileConfig(elements=elements, hints=Hints(occupancy=occupancy, num_worker_warps=warps))


@tuned("dropout", space=search_space, bucketed=("n",))
def heuristic(n: int, itemsize: int, target: Target) -> TileConfig:
    """For n elements; what takes the time is the multiplications of Philox."""
    return TileConfig(elements=min(2048, share(1, n, itemsize, target)), hints=Hints())


@register_impl("dropout", backend="cutile")
def dropout(x: Tensor, seed: int, p: float, out: Tensor | None = None) -> Tensor:
    """See `tilegym/specs/dropout.py`; 0 < p, since the contract answers for p = 0."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n = x.numel()
    if n == 0:
        return out
    config = heuristic(n, x.element_size(), target_of(x))
    pairs = config.elements // 8
    arrays = tuple(as_split_rows(tensor, x.dim())[0] for tensor in ((x,) if out is x else (x, out)))
    last_dropped = math.ceil(p * 2**32) - 1  # u >= p, as integers
    scale = 1 / (1 - p) if p < 1 else 0.0
    blocks, more = grid(-(-n // config.elements))
    args = (arrays, n, seed, last_dropped, scale, pairs, ragged(n, config.elements, more=more))
    launch(dropout_tiles, blocks, args, hints=config.hints)
    return out


@register_backward("dropout", backend="cutile")
def dropout_backward(grad_output: Tensor, *, seed: int, p: float) -> Tensor:
    """The gradient of x from that of the output: dropped and scaled alike; of its shape and dtype, contiguous."""
    return dropout(grad_output, seed, p)
