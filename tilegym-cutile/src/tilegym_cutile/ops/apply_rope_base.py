"""Rotary position embedding of q and k, in one launch; the backward is the rotation back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.rows import grid, next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Hints, Target, launch, optional, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time
from tilegym_cutile.tuning import tuned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor


@ct.kernel
def rope_tiles(
    q: Rows,
    k: Rows,
    cos: Rows,
    sin: Rows,
    position_ids: tuple[Rows, ...],
    q_out: Rows,
    k_out: Rows,
    S: int,
    q_blocks: int,
    POSITIONS: ct.Constant[int],
    HEADS: ct.Constant[int],
    WIDTHS: ct.Constant[tuple[int, int, int, int]],
    RAGGED_POSITIONS: ct.Constant[bool],
    RAGGED_HEADS: ct.Constant[bool],
    HEADS_DIM: ct.Constant[int],
    BACKWARD: ct.Constant[bool],
) -> None:
    """One block: POSITIONS positions, and HEADS heads of q or k, in one batch.

    q, q_out: (B, H, S, D) or, if HEADS_DIM is 2, (B, S, H, D), k, k_out: likewise of Hk heads, cos, sin: (L, R),
    (1, L, R) or (B, L, R), position_ids: (1, S) or (B, S), or none if L = S. WIDTHS: R / 2 and the tile that holds it,
    D - R and the tile that holds it. Blocks with the same ct.bid(0) have positions of one batch; the first q_blocks of
    them have heads of q.
    """
    block = tiles.block()
    across = ct.cdiv(S, POSITIONS)
    batch = ct.bid(0) // across
    position = ((ct.bid(0) % across) * POSITIONS + ct.arange(POSITIONS, dtype=ct.int32))[:, None, None]
    position_mask = tiles.inside(position, S, RAGGED_POSITIONS)
    row, row_mask = position, position_mask
    for ids in ct.static_iter(position_ids):
        row = ct.gather(ids, (batch % ids.shape[0], position), mask=position_mask, check_bounds=False)
        row_mask = (row >= 0) & (row < cos.shape[cos.ndim - 2])
    row = ct.broadcast_to(row, (POSITIONS, HEADS, 1))  # else threads would pass rows of cos and sin to one another
    tables = (cos, sin, _row(cos, batch, row), row_mask)
    if block < q_blocks:
        place, mask = _place(q, batch, position, position_mask, block, HEADS, RAGGED_HEADS, HEADS_DIM)
        _rotate(q, q_out, place, mask, tables, WIDTHS, BACKWARD)
    else:
        place, mask = _place(k, batch, position, position_mask, block - q_blocks, HEADS, RAGGED_HEADS, HEADS_DIM)
        _rotate(k, k_out, place, mask, tables, WIDTHS, BACKWARD)


def _row(table: Any, batch: Any, row: Any) -> Any:
    """The index of a row of cos or sin, of two dimensions or three."""
    if table.ndim == 2:
        return (row,)
    return (batch % table.shape[0], row)


def _place(
    x: Any, batch: Any, position: Any, inside: Any, block: Any, HEADS: int, RAGGED_HEADS: bool, HEADS_DIM: int
) -> Any:
    """The index of x's rows at positions and in a block of heads, and a mask; `inside` is that of the positions."""
    head = (block * HEADS + ct.arange(HEADS, dtype=ct.int32))[None, :, None]
    mask = tiles.both(inside, tiles.inside(head, x.shape[HEADS_DIM], RAGGED_HEADS))
    place = (batch, head, position) if HEADS_DIM == 1 else (batch, position, head)
    return place, mask


def _rotate(x: Any, y: Any, place: Any, mask: Any, tables: Any, WIDTHS: tuple[int, ...], BACKWARD: bool) -> None:
    """Rotate the halves of x at a place, and copy the rest, into y.

    The loads of x come first: those of the tables, which blocks share in the cache, then cost no time of their own.
    """
    HALF, HALF_TILE, REST, REST_TILE = WIDTHS
    column = ct.arange(HALF_TILE, dtype=ct.int32)[None, None, :]
    column_mask = tiles.inside(column, HALF, HALF != HALF_TILE)
    low, high, half_mask = (*place, column), (*place, column + HALF), tiles.both(mask, column_mask)
    a, b = _load(x, low, half_mask), _load(x, high, half_mask)
    cos, sin, row, row_mask = tables
    table_mask = tiles.both(row_mask, column_mask)
    cos_low, cos_high = _load(cos, (*row, column), table_mask), _load(cos, (*row, column + HALF), table_mask)
    sin_low, sin_high = _load(sin, (*row, column), table_mask), _load(sin, (*row, column + HALF), table_mask)
    if BACKWARD:
        sin_low, sin_high = -sin_high, -sin_low
    halves = ct.cat(((a * cos_low - b * sin_low)[:, :, None, :], (b * cos_high + a * sin_high)[:, :, None, :]), 2)
    whole = ct.arange(2, dtype=ct.int32)[None, None, :, None] * HALF + column[:, :, None, :]
    expanded: Any = ()
    for one in ct.static_iter(place):
        expanded = (*expanded, _widen(one))
    _store(y, (*expanded, whole), halves, None if half_mask is None else half_mask[:, :, None, :])
    if REST > 0:
        column = ct.arange(REST_TILE, dtype=ct.int32)[None, None, :]
        rest, rest_mask = (*place, column + 2 * HALF), tiles.both(mask, tiles.inside(column, REST, REST != REST_TILE))
        _store(y, rest, _load(x, rest, rest_mask), rest_mask)


def _widen(index: Any) -> Any:
    return index if len(index.shape) == 0 else index[:, :, :, None]


def _load(array: Any, index: Any, mask: Any) -> Any:
    return ct.astype(ct.gather(array, index, mask=mask, check_bounds=False), ct.float32)


def _store(array: Any, index: Any, value: Any, mask: Any) -> None:
    ct.scatter(array, index, ct.astype(value, array.dtype), mask=mask, check_bounds=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeConfig:
    """What a block takes."""

    positions: int
    heads: int
    hints: Hints = Hints()  # noqa: RUF009 - frozen


def search_space(positions: int, heads: int, size: int) -> Iterator[RopeConfig]:
    """What is worth trying."""
    for at_once, together in itertools.product((1, 2, 4, 8, 16, 32), repeat=2):
        elements = at_once * together * next_power_of_2(size)
        if at_once <= next_power_of_2(positions) and together <= next_power_of_2(heads) and 1024 <= elements <= 8192:
            for warps in (None, 8):
                hints = Hints(num_worker_warps=warps)
                yield RopeConfig(positions=at_once, heads=together, hints=hints)


@tuned("rope", space=search_space, bucketed=("positions",))
def heuristic(
    positions: int,
    heads: int,
    size: int,
    itemsize: int,  # noqa: ARG001 - tells tuned configurations apart
    target: Target,
) -> RopeConfig:
    """Some positions and some heads, since either may be what lies together in memory."""
    together = min(next_power_of_2(heads), 8)
    at_once = rows_per_block(positions, together * next_power_of_2(size), 4096, target.num_sms)
    return RopeConfig(positions=at_once, heads=together)


@register_impl("apply_rope_base", backend="cutile")
def apply_rope_base(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, unsqueeze_dim: int
) -> tuple[Tensor, Tensor]:
    """See `tilegym/specs/apply_rope_base.py`."""
    return _rotated(q, k, (cos, sin, position_ids), unsqueeze_dim, backward=False)


@register_backward("apply_rope_base", backend="cutile")
def apply_rope_base_backward(
    grad_q: Tensor, grad_k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, *, unsqueeze_dim: int
) -> tuple[Tensor, Tensor]:
    """The gradients of q and k, from those of the outputs: of their shapes, dtypes and, if dense, strides."""
    return _rotated(grad_q, grad_k, (cos, sin, position_ids), unsqueeze_dim, backward=True)


def _rotated(
    q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor, Tensor | None], heads_dim: int, *, backward: bool
) -> tuple[Tensor, Tensor]:
    """Rotate q and k, or rotate them back."""
    outs = torch.empty_like(q), torch.empty_like(k)
    batch, length, heads, kv_heads = q.shape[0], q.shape[3 - heads_dim], q.shape[heads_dim], k.shape[heads_dim]
    if q.numel() + k.numel() == 0:
        return outs
    cos, sin, position_ids = tables
    half, size = cos.shape[-1] // 2, q.shape[3]
    rest = size - 2 * half
    config = heuristic(batch * length, max(heads, kv_heads), size, q.element_size(), target_of(q))
    block, heads_block = config.positions, config.heads
    blocks = -(-heads // heads_block), -(-kv_heads // heads_block)
    arrays = (q, k, cos, sin, optional(position_ids), *outs)
    widths = (half, next_power_of_2(half), rest, next_power_of_2(rest) if rest else 0)
    (_, across, deep), more = grid(sum(blocks))
    ragged = (length % block != 0, more or heads % heads_block != 0 or kv_heads % heads_block != 0)
    args = (*arrays, length, blocks[0], block, heads_block, widths, *ragged, heads_dim, backward)
    launch(rope_tiles, (batch * -(-length // block), across, deep), args, hints=config.hints)
    return outs
