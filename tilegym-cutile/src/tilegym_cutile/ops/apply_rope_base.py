"""Rotary position embedding of q and k, in one launch; the backward is the rotation back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch

from tilegym import register_backward, register_impl
from tilegym_cutile import tiles
from tilegym_cutile.rows import next_power_of_2, rows_per_block
from tilegym_cutile.runtime import Target, launch, target_of
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time

if TYPE_CHECKING:
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
    k_blocks: int,
    POSITIONS: ct.Constant[int],
    HEADS: ct.Constant[int],
    HALF: ct.Constant[int],
    HALF_TILE: ct.Constant[int],
    REST: ct.Constant[int],
    REST_TILE: ct.Constant[int],
    RAGGED_POSITIONS: ct.Constant[bool],
    RAGGED_HEADS: ct.Constant[bool],
    BACKWARD: ct.Constant[bool],
) -> None:
    """One block: POSITIONS positions, and HEADS heads of q or k, in one batch.

    q, q_out: (B, S, H, D), k, k_out: (B, S, Hk, D), cos, sin: (B, L, R), position_ids: (B, S), or none if L = S.
    HALF = R / 2, REST = D - R, and the tiles that hold them. The q_blocks + k_blocks blocks that share positions come
    one after the other, so that their rows of cos and sin are still in the cache.
    """
    block = ct.bid(0) % (q_blocks + k_blocks)
    tile = ct.bid(0) // (q_blocks + k_blocks)
    across = ct.cdiv(S, POSITIONS)
    batch = tile // across
    position = ((tile % across) * POSITIONS + ct.arange(POSITIONS, dtype=ct.int32))[:, None, None]
    position_mask = tiles.inside(position, S, RAGGED_POSITIONS)
    column = ct.arange(HALF_TILE, dtype=ct.int32)[None, None, :]
    column_mask = tiles.inside(column, HALF, HALF != HALF_TILE)

    row, row_mask = position, position_mask
    for ids in ct.static_iter(position_ids):
        row = ct.gather(ids, (batch, position), mask=position_mask, check_bounds=False)
        row_mask = (row >= 0) & (row < cos.shape[1])
    tables = (cos, sin, (batch, row), tiles.both(row_mask, column_mask))
    if block < q_blocks:
        head = (block * HEADS + ct.arange(HEADS, dtype=ct.int32))[None, :, None]
        mask = tiles.both(position_mask, tiles.inside(head, q.shape[2], RAGGED_HEADS))
        _rotate(q, q_out, (batch, position, head), tables, mask, HALF, HALF_TILE, REST, REST_TILE, BACKWARD)
    else:
        head = ((block - q_blocks) * HEADS + ct.arange(HEADS, dtype=ct.int32))[None, :, None]
        mask = tiles.both(position_mask, tiles.inside(head, k.shape[2], RAGGED_HEADS))
        _rotate(k, k_out, (batch, position, head), tables, mask, HALF, HALF_TILE, REST, REST_TILE, BACKWARD)


def _rotate(
    x: Any,
    y: Any,
    place: Any,
    tables: Any,
    mask: Any,
    HALF: int,
    HALF_TILE: int,
    REST: int,
    REST_TILE: int,
    BACKWARD: bool,
) -> None:
    """Rotate the halves of x at a place, and copy the rest, into y.

    The loads of x come first: those of the tables, which blocks share in the cache, then cost no time of their own.
    """
    column = ct.arange(HALF_TILE, dtype=ct.int32)[None, None, :]
    low, high = (*place, column), (*place, column + HALF)
    half_mask = tiles.both(mask, tiles.inside(column, HALF, HALF != HALF_TILE))
    a, b = _load(x, low, half_mask), _load(x, high, half_mask)
    cos, sin, row, table_mask = tables
    cos_low, cos_high = _load(cos, (*row, column), table_mask), _load(cos, (*row, column + HALF), table_mask)
    sin_low, sin_high = _load(sin, (*row, column), table_mask), _load(sin, (*row, column + HALF), table_mask)
    if BACKWARD:
        sin_low, sin_high = -sin_high, -sin_low
    _store(y, low, a * cos_low - b * sin_low, half_mask)
    _store(y, high, b * cos_high + a * sin_high, half_mask)
    if REST > 0:
        column = ct.arange(REST_TILE, dtype=ct.int32)[None, None, :]
        rest, rest_mask = (*place, column + 2 * HALF), tiles.both(mask, tiles.inside(column, REST, REST != REST_TILE))
        _store(y, rest, _load(x, rest, rest_mask), rest_mask)


def _load(array: Any, index: Any, mask: Any) -> Any:
    return ct.astype(ct.gather(array, index, mask=mask, check_bounds=False), ct.float32)


def _store(array: Any, index: Any, value: Any, mask: Any) -> None:
    ct.scatter(array, index, ct.astype(value, array.dtype), mask=mask, check_bounds=False)


def heuristic(positions: int, heads: int, size: int, target: Target) -> tuple[int, int]:
    """Positions and heads per block: some of each, since either may be what lies together in memory."""
    heads_tile = min(next_power_of_2(heads), 8)
    return rows_per_block(positions, heads_tile * next_power_of_2(size), 4096, target.num_sms), heads_tile


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
    q: Tensor, k: Tensor, tables: tuple[Tensor, Tensor, Tensor | None], unsqueeze_dim: int, *, backward: bool
) -> tuple[Tensor, Tensor]:
    """Rotate q and k, or rotate them back."""
    outs = torch.empty_like(q), torch.empty_like(k)
    arrays = [x.transpose(1, 2) if unsqueeze_dim == 1 else x for x in (q, k, *outs)]
    batch, length, heads, size = arrays[0].shape
    kv_heads = arrays[1].shape[2]
    if batch * length * size == 0 or heads + kv_heads == 0:
        return outs
    cos, sin = (table.expand(batch, *table.shape[-2:]) for table in tables[:2])
    positions = () if tables[2] is None else (tables[2].expand(batch, length),)
    half = cos.shape[2] // 2
    rest = size - 2 * half
    block, heads_block = heuristic(batch * length, max(heads, kv_heads), size, target_of(q))
    blocks = -(-heads // heads_block), -(-kv_heads // heads_block)
    grid = (batch * -(-length // block) * sum(blocks),)
    ragged = (length % block != 0, heads % heads_block != 0 or kv_heads % heads_block != 0)
    widths = (half, next_power_of_2(half), rest, next_power_of_2(rest) if rest else 0)
    args = (*arrays[:2], cos, sin, positions, *arrays[2:], length, *blocks, block, heads_block, *widths, *ragged)
    launch(rope_tiles, grid, (*args, backward))
    return outs
