"""Matrix products: the tile loop, the order of tiles and what follows a product, which all ops of products share.

A block computes tiles of z = x @ y, where x and y are batches of matrices, or single ones, that may be given
transposed. Which of an op's operands is x is the host code's to choose (`products.py`): the tensor cores take 64 or 128
rows at once, so few rows are better columns, and the result is then stored transposed.
"""

from __future__ import annotations

from typing import Any

import cuda.tile as ct

from tilegym_cutile import activations, tiles
from tilegym_cutile.wide import widened

NONE, RELU, SILU, GELU, GELU_TANH = range(1, 6)
"""Activations, as a kernel's constant."""


@ct.kernel
def gemm_tiles(
    x: ct.Array,
    y: ct.Array,
    c: ct.Array,
    scales: tuple[ct.Array, ...],
    bias: tuple[ct.Array, ...],
    residual: tuple[ct.Array, ...],
    preactivation: tuple[ct.Array, ...],
    TRANS: ct.Constant[tuple[bool, bool, bool]],
    BLOCKED: ct.Constant[tuple[bool, bool, bool, bool]],
    ACTIVATION: ct.Constant[int],
    TF32: ct.Constant[bool],
    TILE: ct.Constant[tuple[int, int, int]],
    PARTS: ct.Constant[int],
    SPLITS: ct.Constant[int],
    GROUP: ct.Constant[int],
    LATENCY: ct.Constant[int],
) -> None:
    """One block: every so-many-th tile of c = activation(scales * x @ y + bias) + residual.

    x: (M, K) or (B, M, K), y: (K, N) or (B, K, N), c: (M, N) or (B, M, N), each with its last dimensions swapped if
    TRANS says so; bias: (N,), residual: as c, preactivation: as c, takes what the activation is given. scales: (1,)
    each. BLOCKED: whether x, y, c and residual can be accessed by whole tiles. With SPLITS > 1, K is split, and c
    (B * SPLITS, M, N) takes the summands, in float32.
    """
    M, K = _matrix_shape(x, TRANS[0])
    N = _matrix_shape(y, TRANS[1])[1]
    tiles_m, tiles_n, steps = _count(M, TILE[0]), _count(N, TILE[1]), _count(K, TILE[2])
    per_split = ct.cdiv(steps, SPLITS)
    matrices = c.shape[0] if c.ndim == 3 else 1
    for unit in range(ct.bid(0), tiles_m * tiles_n * matrices, ct.num_blocks(0)):
        matrix = unit // (tiles_m * tiles_n)
        m, n = raster(unit % (tiles_m * tiles_n), tiles_m, tiles_n, GROUP)
        first = matrix % SPLITS * per_split
        last = min(first + per_split, steps)
        totals = accumulate(x, y, matrix // SPLITS, m, n, first, last, TRANS, BLOCKED, TF32, TILE, PARTS, LATENCY)
        arrays = (scales, bias, residual, preactivation)
        for part in ct.static_iter(range(PARTS)):
            if PARTS == 1:
                _put(c, matrix, m, n, totals[part], TRANS[2], arrays, ACTIVATION, BLOCKED[2:])
            elif n * PARTS + part < _count(N, TILE[1] // PARTS):
                _put(c, matrix, m, n * PARTS + part, totals[part], TRANS[2], arrays, ACTIVATION, BLOCKED[2:])


def _put(
    c: Any, matrix: Any, m: Any, n: Any, total: Any, TRANS: Any, arrays: Any, ACTIVATION: Any, BLOCKED: Any
) -> None:
    """Finish and write the tile (m, n) of a product, or of its transpose."""
    if TRANS:
        total, m, n = ct.transpose(total), n, m
    store(c, matrix, m, n, finish(total, matrix, m, n, arrays, ACTIVATION, BLOCKED, c.dtype), BLOCKED[0])


@ct.kernel
def gemm_sum(
    parts: ct.Array,
    c: ct.Array,
    scales: tuple[ct.Array, ...],
    bias: tuple[ct.Array, ...],
    residual: tuple[ct.Array, ...],
    preactivation: tuple[ct.Array, ...],
    BLOCKED: ct.Constant[tuple[bool, bool, bool]],
    ACTIVATION: ct.Constant[int],
    TILE: ct.Constant[tuple[int, int]],
    SPLITS: ct.Constant[int],
) -> None:
    """One block: one tile of c, from its SPLITS summands, in their order.

    parts: (B * SPLITS, M, N), c: (B, M, N) or (M, N); the rest as in `gemm_tiles`, BLOCKED of parts, c and residual.
    """
    m, n, matrix = ct.bid(0), ct.bid(1), ct.bid(2)
    total = _load(parts, matrix * SPLITS, m, n, TILE, False, BLOCKED[0], 1)
    for split in range(1, SPLITS):
        total = total + _load(parts, matrix * SPLITS + split, m, n, TILE, False, BLOCKED[0], 1)
    total = finish(total, matrix, m, n, (scales, bias, residual, preactivation), ACTIVATION, BLOCKED[1:], c.dtype)
    store(c, matrix, m, n, total, BLOCKED[1])


@ct.kernel
def group_gemm_tiles(
    xs: list[ct.Array],
    ys: list[ct.Array],
    cs: list[ct.Array],
    MEMBERS: int,
    TRANS: ct.Constant[tuple[bool, bool]],
    BLOCKED: ct.Constant[tuple[bool, bool, bool]],
    TF32: ct.Constant[bool],
    TILE: ct.Constant[tuple[int, int, int]],
    GROUP: ct.Constant[int],
    LATENCY: ct.Constant[int],
) -> None:
    """One block: every so-many-th tile of all products xs[i] @ ys[i] = cs[i], counted on from one to the next.

    xs: (M, K), ys: (K, N), or transposed if TRANS says so, cs: (M, N), each member with its own sizes. BLOCKED: whether
    all members of xs, ys and cs can be accessed by whole tiles.
    """
    blocks = ct.num_blocks(0)
    before = 0
    for member in range(MEMBERS):
        x, y, c = xs[member], ys[member], cs[member]
        tiles_m, tiles_n = _count(c.shape[0], TILE[0]), _count(c.shape[1], TILE[1])
        steps = _count(_matrix_shape(x, TRANS[0])[1], TILE[2])
        for tile in range((ct.bid(0) + blocks - before % blocks) % blocks, tiles_m * tiles_n, blocks):
            m, n = raster(tile, tiles_m, tiles_n, GROUP)
            (total,) = accumulate(x, y, 0, m, n, 0, steps, TRANS, BLOCKED, TF32, TILE, 1, LATENCY)
            store(c, 0, m, n, ct.astype(_saturated(total, c.dtype), c.dtype), BLOCKED[2])
        before = before + tiles_m * tiles_n


def raster(tile: Any, tiles_m: Any, tiles_n: Any, GROUP: Any) -> Any:
    """Where the tile of this number lies: GROUP rows of tiles are walked down together, so that caches serve them."""
    width = GROUP * tiles_n
    first = tile // width * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % width % rows, tile % width // rows


def accumulate(
    x: Any,
    y: Any,
    matrix: Any,
    m: Any,
    n: Any,
    first: Any,
    last: Any,
    TRANS: Any,
    BLOCKED: Any,
    TF32: Any,
    TILE: Any,
    PARTS: Any,
    LATENCY: Any,
) -> Any:
    """The tile (m, n) of x @ y, in float32, from the steps along K from first to last: in PARTS of its columns.

    Parts beyond y's edge are those of its last columns again.
    """
    width = TILE[1] // PARTS
    end = _count(_matrix_shape(y, TRANS[1])[1], width)
    totals: Any = ()
    for _ in ct.static_iter(range(PARTS)):
        totals = (*totals, ct.zeros((TILE[0], width), dtype=ct.float32))
    for step in range(first, last):
        left = _load(x, matrix, m, step, (TILE[0], TILE[2]), TRANS[0], BLOCKED[0], LATENCY)
        added: Any = ()
        for part in ct.static_iter(range(PARTS)):
            column = n if PARTS == 1 else min(n * PARTS + part, end - 1)
            right = _load(y, matrix, step, column, (TILE[2], width), TRANS[1], BLOCKED[1], LATENCY)
            added = (*added, ct.mma(*_alike(left, right, TF32), totals[part]))
        totals = added
    return totals


def _alike(left: Any, right: Any, TF32: Any) -> Any:
    """Operands in the dtype that they are multiplied in."""
    if TF32:
        return ct.astype(left, ct.tfloat32), ct.astype(right, ct.tfloat32)
    if left.dtype != right.dtype:
        common = _common(left.dtype, right.dtype)
        return ct.astype(left, common), ct.astype(right, common)
    return left, right


def finish(total: Any, matrix: Any, m: Any, n: Any, arrays: Any, ACTIVATION: Any, BLOCKED: Any, dtype: Any) -> Any:
    """What follows the product, on its tile (m, n), in `dtype`: activation(scales * total + bias) + residual."""
    scales, bias, residual, preactivation = arrays
    for scale in ct.static_iter(scales):
        total = total * ct.load(scale, (0,), (1,)).reshape((1, 1))
    for array in ct.static_iter(bias):
        column = tiles.row_numbers(n, total.shape[1]).reshape((1, total.shape[1]))
        values = ct.gather(array, (column,), mask=column < array.shape[0], padding_value=0, check_bounds=False)
        total = total + ct.astype(values, ct.float32)
    for array in ct.static_iter(preactivation):
        store(array, matrix, m, n, ct.astype(total, array.dtype), BLOCKED[0])
    precise = ct.float32 if len(residual) else dtype  # for a sum may cancel
    if ACTIVATION == RELU:
        total = ct.where(total < 0, 0.0, total)
    elif ACTIVATION == SILU:
        total = activations.silu(total, precise)
    elif ACTIVATION == GELU:
        total = activations.gelu(total, precise)
    elif ACTIVATION == GELU_TANH:
        total = activations.gelu_tanh(total, precise)
    for array in ct.static_iter(residual):
        total = total + ct.astype(_load(array, matrix, m, n, total.shape, False, BLOCKED[1], 1), ct.float32)
    return ct.astype(_saturated(total, dtype), dtype)


def store(array: Any, matrix: Any, i: Any, j: Any, tile: Any, BLOCKED: Any) -> None:
    """Write the tile at (i, j) of a matrix."""
    if not BLOCKED:
        index, mask = _elements(array, matrix, i, j, tile.shape, False)
        ct.scatter(array, index, tile, mask=mask, check_bounds=False)
    elif array.ndim == 2:
        ct.store(array, (i, j), tile)
    else:
        ct.store(array, (matrix, i, j), tile.reshape((1, *tile.shape)))


def _load(array: Any, matrix: Any, i: Any, j: Any, SHAPE: Any, TRANS: Any, BLOCKED: Any, LATENCY: Any) -> Any:
    """The tile at (i, j) of a matrix, or of its transpose; 0 beyond its edges."""
    if not BLOCKED:
        index, mask = _elements(array, matrix, i, j, SHAPE, TRANS)
        return ct.gather(array, index, mask=mask, padding_value=0, check_bounds=False, latency=LATENCY)
    padding = ct.PaddingMode.ZERO
    if array.ndim == 2:
        return ct.load(array, (i, j), SHAPE, order=(1, 0) if TRANS else (0, 1), padding_mode=padding, latency=LATENCY)
    order = (0, 2, 1) if TRANS else (0, 1, 2)
    tile = ct.load(array, (matrix, i, j), (1, *SHAPE), order=order, padding_mode=padding, latency=LATENCY)
    return tile.reshape(SHAPE)


def _elements(array: Any, matrix: Any, i: Any, j: Any, SHAPE: Any, TRANS: Any) -> Any:
    """The indices of a tile's elements, and which of them there are."""
    M, N = _matrix_shape(array, TRANS)
    row, column = _numbers(i, SHAPE[0], M.dtype)[:, None], _numbers(j, SHAPE[1], N.dtype)[None, :]
    index = (column, row) if TRANS else (row, column)
    return index if array.ndim == 2 else (matrix, *index), (row < M) & (column < N)


def _numbers(tile: Any, SIZE: Any, dtype: Any) -> Any:
    """Of the rows, or columns, of a tile: in 32 bits where arrays' sizes have no more, to save registers."""
    return ct.astype(tile, dtype) * SIZE + ct.arange(SIZE, dtype=dtype)


def _matrix_shape(array: Any, TRANS: Any) -> Any:
    rows, columns = array.shape[array.ndim - 2], array.shape[array.ndim - 1]
    return (columns, rows) if TRANS else (rows, columns)


def _count(size: Any, TILE: Any) -> Any:
    return ct.astype(ct.cdiv(size, TILE), ct.int32)


def _is_float8(dtype: Any) -> Any:
    return dtype == ct.float8_e4m3fn or dtype == ct.float8_e5m2  # noqa: PLR1714 - tile code has no `in`


def _common(one: Any, other: Any) -> Any:
    """A dtype that holds all that either of two holds."""
    if _is_float8(one):
        return ct.float16 if _is_float8(other) else other
    return one if _is_float8(other) else ct.float32


def _saturated(total: Any, dtype: Any) -> Any:
    """Held to what float8 can hold; NaN stays."""
    if dtype == ct.float8_e4m3fn:
        return _clamped(total, 448.0)
    if dtype == ct.float8_e5m2:
        return _clamped(total, 57344.0)
    return total


def _clamped(total: Any, largest: Any) -> Any:
    return ct.maximum(ct.minimum(total, largest, propagate_nan=True), -largest, propagate_nan=True)


# At the end, since they see what is defined above alone.
gemm_tiles_wide = widened(gemm_tiles)
gemm_sum_wide = widened(gemm_sum)
