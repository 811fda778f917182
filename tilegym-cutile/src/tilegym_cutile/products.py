"""Host code of the matrix products: operands as the kernels of `gemm.py` want them, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.contract import FLOAT8
from tilegym_cutile import gemm
from tilegym_cutile.gemm_config import count_tiles, fills, group_heuristic
from tilegym_cutile.gemm_plan import Form, multiplied_in, plan
from tilegym_cutile.runtime import executor_of, is_captured, launch, target_of

if TYPE_CHECKING:
    from torch import Tensor


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


def new_product(a: Tensor, b: Tensor, trans_a: bool, trans_b: bool, out_dtype: torch.dtype | None) -> Tensor:
    """For `multiply` to fill: of a's dtype, unless another is given, and contiguous."""
    shape = (*a.shape[:-2], a.shape[-1 if trans_a else -2], b.shape[-2 if trans_b else -1])
    return torch.empty(*shape, dtype=a.dtype if out_dtype is None else out_dtype, device=a.device)


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
        a, trans_a = torch.zeros(*c.shape[:-1], 1, dtype=a.dtype, device=a.device), False
        b, trans_b = torch.zeros(*c.shape[:-2], 1, c.shape[-1], dtype=b.dtype, device=b.device), False
    a, b = _once(a), _once(b)
    executor = executor_of(c)
    residual = None if after.residual is None else Form.of(after.residual)
    forms = (Form.of(a), Form.of(b), Form.of(c), residual)
    made = plan(*forms, trans_a, trans_b, tf32, after.activation, persistent, use_tma, executor.target)
    x, y, z = [one.mT if turned else one for one, turned in zip((a, b, c), made.turned, strict=True)]
    if made.swapped:
        x, y = y, x
    more = _tensors(after)
    if made.parts is None:
        executor.launch(made.kernel, made.grid, (x, y, z, *more, *made.constants))
        return
    parts = c.new_empty(*made.parts, dtype=torch.float32)
    executor.launch(made.kernel, made.grid, (x, y, parts, (), (), (), (), *made.constants))
    executor.launch(made.add, made.add_grid, (parts, z, *more, *made.add_constants))


def _once(operand: Tensor) -> Tensor:
    """The one matrix that an expanded batch repeats: it can be loaded as blocks."""
    return operand[0] if operand.dim() == 3 and operand.stride(0) == 0 else operand


def multiply_group(
    group: list[tuple[Tensor, Tensor, Tensor]],
    *,
    trans_a: bool = False,
    trans_b: bool = False,
    tf32: bool,
    persistent: bool = True,
    use_tma: bool = True,
) -> None:
    """Compute c = a @ b for each (a, b, c) that has terms and elements; all a have one dtype, all b and all c too.

    In one launch; in one each where each keeps the device busy by itself, and while a CUDA graph is captured.
    """
    members = [(a, b, c) for a, b, c in group if a.numel() and c.numel()]
    if not members:
        return
    target = target_of(members[0][2])
    if all(fills(c.numel(), target) for _, _, c in members) or is_captured(members[0][2]):
        for a, b, c in members:
            multiply(a, b, c, trans_a=trans_a, trans_b=trans_b, tf32=tf32, persistent=persistent, use_tma=use_tma)
        return
    xs, ys, cs = ([one[at] for one in members] for at in range(3))
    (xs, trans_a), (ys, trans_b), (cs, turned) = (
        _all_in_order(arrays, transposed) for arrays, transposed in ((xs, trans_a), (ys, trans_b), (cs, False))
    )
    if turned:  # the transposes are computed
        xs, ys, trans_a, trans_b = ys, xs, not trans_b, not trans_a
    blocked = tuple(use_tma and all(Form.of(one).is_blocked for one in arrays) for arrays in (xs, ys))
    rows, columns = sum([c.shape[0] for c in cs]), max([c.shape[1] for c in cs])
    trans = (trans_a, trans_b)
    dtype = multiplied_in(xs[0].dtype, ys[0].dtype)
    config = group_heuristic(rows, columns, len(cs), trans, dtype, tf32, all(blocked), target)
    tiles = sum([count_tiles(config, c.shape[0], c.shape[1], 1) for c in cs])
    grid = min(tiles, target.num_sms * (config.hints.occupancy or 1)) if persistent else tiles
    stored = all(Form.of(one).is_blocked for one in cs)
    how = (trans, (*blocked, stored), tf32, config.tile, config.group, config.latency)
    launch(gemm.group_gemm_tiles, (grid,), (xs, ys, cs, len(cs), *how), hints=config.hints)


def why_no_float8(a: Tensor, *_: Any) -> str | None:
    """Why a call cannot be taken, or None: on older GPUs there is no float8."""
    if a.dtype in FLOAT8 and a.is_cuda and target_of(a).capability < (8, 9):
        return "float8 needs a GPU of compute capability 8.9 (Ada) or higher"
    return None


def _tensors(epilogue: Epilogue) -> tuple[tuple[Tensor, ...], ...]:
    """Those of an epilogue as kernels take them."""
    scales = tuple([scale.as_strided((1,), (1,)) for scale in epilogue.scales])
    others = (epilogue.bias, epilogue.residual, epilogue.preactivation)
    return scales, *[() if one is None else (one,) for one in others]


def _all_in_order(group: list[Tensor], transposed: bool) -> tuple[list[Tensor], bool]:
    """A group, or its transposes where in all of them adjacent elements are in columns; and what is transposed then."""
    if all(Form.of(one).in_columns for one in group):
        return [one.mT for one in group], not transposed
    return group, transposed
