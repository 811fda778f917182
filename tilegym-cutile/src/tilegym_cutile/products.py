"""Host code of the matrix products: operands as the kernels of `gemm.py` want them, and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.contract import FLOAT8
from tilegym_cutile import gemm
from tilegym_cutile.elementwise import copy
from tilegym_cutile.gemm_config import copies_pay, count_tiles, fills, group_heuristic
from tilegym_cutile.gemm_plan import Form, multiplied_in, plan
from tilegym_cutile.runtime import executor_of, is_captured, launch, optional, target_of
from tilegym_cutile.wide import has_32_bits

if TYPE_CHECKING:
    from torch import Tensor

    from tilegym_cutile.runtime import Target

    _Operands = tuple[list[Tensor], list[Form]]


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
    if any(made.copied):
        x, y = [_aligned(one) if copied else one for one, copied in zip((x, y), made.copied, strict=True)]
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


def _aligned(operand: Tensor) -> Tensor:
    """A copy that can be loaded as blocks."""
    form = Form.of(operand).aligned
    aligned = torch.empty_strided(form.shape, form.strides, dtype=form.dtype, device=operand.device)
    copy(operand, aligned)
    return aligned


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

    In one launch; in one each where each keeps the device busy by itself, while a CUDA graph is captured, and where a
    stride is beyond 32 bits, which arrays in lists do not have.
    """
    members = [(a, b, c) for a, b, c in group if a.numel() and c.numel()]
    if not members:
        return
    target = target_of(members[0][2])
    how: dict[str, Any] = {"tf32": tf32, "persistent": persistent, "use_tma": use_tma}
    if all(fills(c.numel(), target) for _, _, c in members) or is_captured(members[0][2]):
        for a, b, c in members:
            multiply(a, b, c, trans_a=trans_a, trans_b=trans_b, **how)
        return
    xs, x_forms, trans_a = _all_in_order([a for a, _, _ in members], trans_a)
    ys, y_forms, trans_b = _all_in_order([b for _, b, _ in members], trans_b)
    cs, c_forms, turned = _all_in_order([c for _, _, c in members], False)
    if turned:  # the transposes are computed
        xs, x_forms, trans_a, ys, y_forms, trans_b = ys, y_forms, not trans_b, xs, x_forms, not trans_a
    if not all(has_32_bits(form.shape, form.strides) for form in (*x_forms, *y_forms, *c_forms)):
        for x, y, c in zip(xs, ys, cs, strict=True):
            multiply(x, y, c, trans_a=trans_a, trans_b=trans_b, **how)
        return
    if use_tma:
        products = sum([c.numel() * x.shape[0 if trans_a else 1] for x, c in zip(xs, cs, strict=True)])
        (xs, x_forms), (ys, y_forms) = _all_aligned((xs, x_forms), (ys, y_forms), products, target)
    x_blocked, y_blocked, stored = [all(form.is_blocked for form in forms) for forms in (x_forms, y_forms, c_forms)]
    blocked = (x_blocked and use_tma, y_blocked and use_tma)
    sizes = [form.shape for form in c_forms]
    rows, columns = sum([m for m, _ in sizes]), max([n for _, n in sizes])
    trans = (trans_a, trans_b)
    dtype = multiplied_in(xs[0].dtype, ys[0].dtype)
    config = group_heuristic(rows, columns, len(cs), trans, dtype, tf32, all(blocked), target)
    tiles = sum([count_tiles(config, m, n, 1) for m, n in sizes])
    grid = min(tiles, config.hints.at_once(target.num_sms)) if persistent else tiles
    constants = (trans, (*blocked, stored), tf32, config.tile, config.group, config.latency)
    launch(gemm.group_gemm_tiles, (grid,), (xs, ys, cs, len(cs), *constants), hints=config.hints)


def why_no_float8(a: Tensor, *_: Any) -> str | None:
    """Why a call cannot be taken, or None: on older GPUs there is no float8."""
    if a.dtype in FLOAT8 and a.is_cuda and target_of(a).capability < (8, 9):
        return "float8 needs a GPU of compute capability 8.9 (Ada) or higher"
    return None


def _tensors(epilogue: Epilogue) -> tuple[tuple[Tensor, ...], ...]:
    """Those of an epilogue as kernels take them."""
    scales = tuple([scale.as_strided((1,), (1,)) for scale in epilogue.scales])
    return scales, optional(epilogue.bias), optional(epilogue.residual), optional(epilogue.preactivation)


def _all_aligned(xs: _Operands, ys: _Operands, products: int, target: Target) -> tuple[_Operands, _Operands]:
    """The operands of so many products of two numbers, as copies if they cannot be loaded as blocks and that pays."""
    given = [(one, form) for group, forms in (xs, ys) for one, form in zip(group, forms, strict=True)]
    odd = {id(one): one for one, form in given if not form.is_blocked}
    if not copies_pay(products, [one.numel() for one in odd.values()], target):
        return xs, ys
    copies = {number: _aligned(one) for number, one in odd.items()}
    groups = [[copies.get(id(one), one) for one in group] for group, _ in (xs, ys)]
    new_xs, new_ys = [(group, [Form.of(one) for one in group]) for group in groups]
    return new_xs, new_ys


def _all_in_order(group: list[Tensor], transposed: bool) -> tuple[list[Tensor], list[Form], bool]:
    """A group, or its transposes where in all of them adjacent elements are in columns; and what is transposed then."""
    forms = [Form.of(one) for one in group]
    if all(form.in_columns for form in forms):
        views = {id(one): one.mT for one in group}  # one for an operand that members share
        return [views[id(one)] for one in group], [form.turned for form in forms], not transposed
    return group, forms, transposed
