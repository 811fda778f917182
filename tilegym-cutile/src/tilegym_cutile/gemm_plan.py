"""How a matrix product is computed: which kernel of `gemm.py` with which constants, from how its matrices lie.

A plan is made once for matrices of the same forms, since a product may take less time than making one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from tilegym.contract import FLOAT8
from tilegym_cutile import gemm
from tilegym_cutile.gemm_config import copies_pay, count_tiles, heuristic
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.runtime import Target, with_hints
from tilegym_cutile.tuning import cached
from tilegym_cutile.wide import fits

if TYPE_CHECKING:
    import cuda.tile as ct
    from torch import Tensor

_ACTIVATIONS: Final = {
    None: gemm.NONE,
    "relu": gemm.RELU,
    "silu": gemm.SILU,
    "gelu": gemm.GELU,
    "gelu_tanh": gemm.GELU_TANH,
}
_ALIGNMENT: Final = 16  # bytes: what the tensor memory accelerator wants of bases and strides


class Form(NamedTuple):
    """How a matrix, or a batch of them, lies in memory: all that its product's plan depends on."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    """Of the first element, in bytes, but for multiples of `_ALIGNMENT`."""

    @classmethod
    def of(cls, tensor: Tensor) -> Form:
        """The form of a tensor."""
        offset = int(tensor.storage_offset()) * tensor.element_size() % _ALIGNMENT
        return cls(tensor.shape, tensor.stride(), tensor.dtype, offset)

    @property
    def turned(self) -> Form:
        """That of the transpose."""
        *outer, m, n = self.shape
        *strides, across, along = self.strides
        return self._replace(shape=(*outer, n, m), strides=(*strides, along, across))

    @property
    def in_columns(self) -> bool:
        """Whether adjacent elements are in columns, and not in rows."""
        return self.strides[-1] != 1 and self.strides[-2] == 1

    @property
    def is_blocked(self) -> bool:
        """Whether tiles can be accessed as blocks: rows are adjacent elements, and begin where hardware wants."""
        *strides, last = self.strides
        size = self.dtype.itemsize
        aligned = all(stride > 0 and stride * size % _ALIGNMENT == 0 for stride in strides)
        return last == 1 and aligned and self.offset == 0

    @property
    def aligned(self) -> Form:
        """That of a copy whose tiles can be accessed as blocks: the next row begins where hardware wants."""
        m, n = self.shape[-2:]
        together = _ALIGNMENT // self.dtype.itemsize
        row = -(-n // together) * together
        return self._replace(strides=(m * row, row, 1)[-len(self.shape) :], offset=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The launches of a product, but for their arrays."""

    turned: tuple[bool, bool, bool]
    """Which of a, b and c are given as their transposes."""
    copied: tuple[bool, bool]
    """Whether a and b, once they are turned, are multiplied as copies in aligned rows."""
    swapped: bool
    """Whether b is the kernel's x, and a its y."""
    kernel: ct.kernel
    grid: tuple[int]
    constants: tuple[Any, ...]
    parts: tuple[int, int, int] | None
    """The shape of the summands, if K is split; the rest then tells how they are added up."""
    add: ct.kernel
    add_grid: tuple[int, int, int]
    add_constants: tuple[Any, ...]


@cached
def plan(
    a: Form,
    b: Form,
    c: Form,
    residual: Form | None,
    trans_a: bool,
    trans_b: bool,
    tf32: bool,
    activation: str | None,
    persistent: bool,
    use_tma: bool | None,
    target: Target,
) -> Plan:
    """How c = a @ b is computed, and what follows it, of arrays of these forms; the rest as `multiply` takes it."""
    turned = a.in_columns, b.in_columns, c.in_columns
    a, b, c = [one.turned if one.in_columns else one for one in (a, b, c)]
    trans_a, trans_b = trans_a != turned[0], trans_b != turned[1]
    k = a.shape[-2 if trans_a else -1]
    copied = (False, False) if use_tma is False else _copied(a, b, math.prod(c.shape) * k, target)
    a, b = [one.aligned if copy else one for one, copy in zip((a, b), copied, strict=True)]
    if turned[2]:  # as gradients of transposed operands are: the transpose is computed
        a, b, trans_a, trans_b = b, a, not trans_b, not trans_a
    m, n = c.shape[-2:]
    matrices = c.shape[0] if len(c.shape) == 3 else 1
    blocked = (a.is_blocked, b.is_blocked) if use_tma is not False else (False, False)
    dtype = multiplied_in(a.dtype, b.dtype)
    config = heuristic(m, n, k, matrices, (trans_a, trans_b), dtype, tf32, all(blocked), c.is_blocked, target)
    if config.swapped:
        trans_a, trans_b, blocked = not trans_b, not trans_a, blocked[::-1]
    tiles = count_tiles(config, m, n, matrices) * config.splits
    grid = min(tiles, config.hints.at_once(target.num_sms)) if persistent else tiles
    narrow = all(fits(one.shape, one.strides) for one in (a, b, c, residual) if one is not None)
    stored = (c.is_blocked, residual is None or residual.is_blocked)
    number, split = _ACTIVATIONS[activation], config.splits > 1
    parts_blocked = n * torch.float32.itemsize % _ALIGNMENT == 0
    how = ((*blocked, parts_blocked, True), gemm.NONE) if split else ((*blocked, *stored), number)
    tile = (min(16, next_power_of_2(m)), 128)
    return Plan(
        turned=turned,
        copied=copied,
        swapped=config.swapped != turned[2],
        kernel=with_hints(gemm.gemm_tiles if narrow else gemm.gemm_tiles_wide, config.hints),
        grid=(grid,),
        constants=(
            (trans_a, trans_b, config.swapped),
            *how,
            tf32,
            config.tile,
            config.parts,
            config.splits,
            config.group,
            config.latency,
        ),
        parts=(matrices * config.splits, m, n) if split else None,
        add=gemm.gemm_sum if narrow else gemm.gemm_sum_wide,
        add_grid=(-(-m // tile[0]), -(-n // tile[1]), matrices),
        add_constants=((parts_blocked, *stored), number, tile, config.splits),
    )


def _copied(a: Form, b: Form, products: int, target: Target) -> tuple[bool, bool]:
    """Which operands of so many products of two numbers are to be copied, so that all can be accessed as blocks."""
    odd = [not one.is_blocked for one in (a, b)]
    elements = [math.prod(one.shape) for one in itertools.compress((a, b), odd)]
    return (odd[0], odd[1]) if copies_pay(products, elements, target) else (False, False)


def multiplied_in(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """What a kernel multiplies operands of these dtypes in."""
    if one == other:
        return one
    if one in FLOAT8:
        return torch.float16 if other in FLOAT8 else other
    return one if other in FLOAT8 else torch.float32
