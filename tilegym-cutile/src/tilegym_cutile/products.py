"""Host code of the matrix products: operands as the kernels of `gemm.py` want them, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym_cutile import gemm
from tilegym_cutile.gemm_config import FLOAT8, GemmConfig, count_tiles, group_heuristic, heuristic
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import launch, target_of
from tilegym_cutile.wide import fits_tma

if TYPE_CHECKING:
    from torch import Tensor

_ACTIVATIONS: Final = {
    None: gemm.NONE,
    "relu": gemm.RELU,
    "silu": gemm.SILU,
    "gelu": gemm.GELU,
    "gelu_tanh": gemm.GELU_TANH,
}
_ALIGNMENT: Final = 16  # bytes: what the tensor memory accelerator wants of bases and strides


@dataclass(frozen=True, kw_only=True, slots=True)
class Epilogue:
    """What follows a product."""

    scales: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    activation: str | None = None
    residual: Tensor | None = None
    preactivation: Tensor | None = None
    """Takes what the activation is given; laid out as the product."""


NOTHING: Final = Epilogue()


def multiply(
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    tf32: bool = False,
    after: Epilogue = NOTHING,
    persistent: bool = True,
    use_tma: bool | None = None,
) -> None:
    """Compute c = a @ b, and what follows it; a, b and c are matrices, or batches of them, of any strides."""
    if c.numel() == 0:
        return
    if a.numel() == 0:  # no terms: what follows is computed of a zero, and no kernel is given an empty array
        a, trans_a = torch.zeros((*c.shape[:-1], 1), dtype=a.dtype, device=a.device), False
        b, trans_b = torch.zeros((*c.shape[:-2], 1, c.shape[-1]), dtype=b.dtype, device=b.device), False
    if c.stride(-1) != 1 and c.stride(-2) == 1:  # as gradients of transposed operands are: the transpose is computed
        a, b, c, trans_a, trans_b = b, a, c.mT, not trans_b, not trans_a
    (a, trans_a), (b, trans_b) = _in_order(a, trans_a), _in_order(b, trans_b)
    m, n = c.shape[-2:]
    k, matrices = a.shape[-2 if trans_a else -1], c.shape[0] if c.dim() == 3 else 1
    blocked = (_is_blocked(a), _is_blocked(b)) if use_tma is not False else (False, False)
    dtype = a.dtype if a.dtype == b.dtype else _common(a.dtype, b.dtype)
    config = heuristic(m, n, k, matrices, (trans_a, trans_b), dtype, tf32, all(blocked), target_of(c))
    if config.swapped:
        a, b, trans_a, trans_b = b, a, not trans_b, not trans_a
        blocked = (blocked[1], blocked[0])
    _launch(a, b, c, (trans_a, trans_b, config.swapped), blocked, tf32, after, config, persistent)


def multiply_group(
    group_a: list[Tensor],
    group_b: list[Tensor],
    group_c: list[Tensor],
    *,
    trans_b: bool,
    tf32: bool,
    persistent: bool = True,
    use_tma: bool = True,
) -> None:
    """Compute c = a @ b for each member that has terms and elements, in one launch; each c is contiguous."""
    members = [one for one in zip(group_a, group_b, group_c, strict=True) if one[0].numel() and one[2].numel()]
    if not members:
        return
    xs, ys, cs = ([one[at] for one in members] for at in range(3))
    (xs, trans_a), (ys, trans_b) = _all_in_order(xs, False), _all_in_order(ys, trans_b)
    blocked = tuple(use_tma and all(map(_is_blocked, group)) for group in (xs, ys))
    rows, columns = sum([c.shape[0] for c in cs]), max([c.shape[1] for c in cs])
    target = target_of(cs[0])
    trans = (trans_a, trans_b)
    config = group_heuristic(rows, columns, len(cs), trans, xs[0].dtype, tf32, all(blocked), target)
    tiles = sum([count_tiles(config, c.shape[0], c.shape[1], 1) for c in cs])
    grid = min(tiles, target.num_sms * (config.hints.occupancy or 1)) if persistent else tiles
    how = (trans, (*blocked, all(map(_is_blocked, cs))), tf32, config.tile, config.group, config.latency)
    launch(gemm.group_gemm_tiles, (grid,), (xs, ys, cs, len(cs), *how), hints=config.hints)


def why_no_float8(a: Tensor, *_: Any) -> str | None:
    """Why a call cannot be taken, or None: on older GPUs there is no float8."""
    if a.dtype in FLOAT8 and a.is_cuda and torch.cuda.get_device_capability(a.device) < (8, 9):
        return "float8 needs a GPU of compute capability 8.9 (Ada) or higher"
    return None


def _launch(
    x: Tensor,
    y: Tensor,
    c: Tensor,
    trans: tuple[bool, bool, bool],
    blocked: tuple[bool, bool],
    tf32: bool,
    after: Epilogue,
    config: GemmConfig,
    persistent: bool,
) -> None:
    m, n = c.shape[-2:]
    matrices = c.shape[0] if c.dim() == 3 else 1
    tiles = count_tiles(config, m, n, matrices) * config.splits
    grid = min(tiles, target_of(c).num_sms * (config.hints.occupancy or 1)) if persistent else tiles
    more = _tensors(after)
    activation = _ACTIVATIONS[after.activation]
    stored = (_is_blocked(c), after.residual is None or _is_blocked(after.residual))
    sizes = (tf32, config.tile, config.splits, config.group, config.latency)
    narrow = fits_tma(x, y, c)
    kernel = gemm.gemm_tiles if narrow else gemm.gemm_tiles_wide
    if config.splits == 1:
        arguments = (x, y, c, *more, trans, (*blocked, *stored), activation, *sizes)
        launch(kernel, (grid,), arguments, hints=config.hints)
        return
    parts = c.new_empty((matrices * config.splits, m, n), dtype=torch.float32)
    whole = (*blocked, _is_blocked(parts), True)
    launch(kernel, (grid,), (x, y, parts, (), (), (), (), trans, whole, gemm.NONE, *sizes), hints=config.hints)
    tile = (min(16, next_power_of_2(m)), 128)
    blocks = (-(-m // tile[0]), -(-n // tile[1]), matrices)
    add = gemm.gemm_sum if narrow else gemm.gemm_sum_wide
    launch(add, blocks, (parts, c, *more, (_is_blocked(parts), *stored), activation, tile, config.splits))


def _tensors(epilogue: Epilogue) -> tuple[tuple[Tensor, ...], ...]:
    """Those of an epilogue as kernels take them."""
    scales = tuple([scale.as_strided((1,), (1,)) for scale in epilogue.scales])
    others = (epilogue.bias, epilogue.residual, epilogue.preactivation)
    return scales, *[() if one is None else (one,) for one in others]


def sum_of_rows(x: Tensor, out: Tensor) -> None:
    """Compute out = x.sum(0), in a fixed order; x: (M, N)."""
    if out.numel():
        launch(gemm.column_sums, (-(-out.numel() // 64),), (x, out, 32, 64))


def _in_order(matrix: Tensor, transposed: bool) -> tuple[Tensor, bool]:
    """The same with adjacent elements in rows, if they are in columns."""
    if matrix.stride(-1) != 1 and matrix.stride(-2) == 1:
        return matrix.mT, not transposed
    return matrix, transposed


def _all_in_order(group: list[Tensor], transposed: bool) -> tuple[list[Tensor], bool]:
    """The same of all matrices of a group, if it helps all."""
    if all(one.stride(-1) != 1 and one.stride(-2) == 1 for one in group):
        return [one.mT for one in group], not transposed
    return group, transposed


def _is_blocked(tensor: Tensor) -> bool:
    """Whether tiles can be loaded and stored as blocks: rows are adjacent elements, and begin where hardware wants."""
    *strides, last = tensor.stride()
    size = tensor.element_size()
    aligned = all(stride > 0 and stride * size % _ALIGNMENT == 0 for stride in strides)
    return last == 1 and aligned and tensor.storage_offset() * size % _ALIGNMENT == 0


def _common(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """What a kernel multiplies in if operands differ."""
    if one in FLOAT8:
        return torch.float16 if other in FLOAT8 else other
    return one if other in FLOAT8 else torch.float32
