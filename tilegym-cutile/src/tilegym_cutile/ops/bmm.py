"""Matrix products of a batch, and their gradients, which are such products too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile.products import multiply, new_product, why_no_float8

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@register_impl("bmm", backend="cutile", supports=why_no_float8)
def bmm(
    a: Tensor,
    b: Tensor,
    transpose_a: bool,
    transpose_b: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,
    *,
    static_persistent: bool = True,
) -> Tensor:
    """See `tilegym/specs/bmm.py`."""
    c = new_product(a, b, transpose_a, transpose_b, out_dtype)
    multiply(a, b, c, trans_a=transpose_a, trans_b=transpose_b, tf32=tf32, persistent=static_persistent)
    return c


@register_backward("bmm", backend="cutile")
def bmm_backward(
    grad_output: Tensor,
    a: Tensor,
    b: Tensor,
    transpose_a: bool,
    transpose_b: bool,
    tf32: bool,
    needs: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a and b, laid out as those are; None for what is not in `needs`."""
    da, db = (torch.empty_like(one) if needed else None for one, needed in zip((a, b), needs, strict=True))
    if da is not None:
        multiply(grad_output, b, da.mT if transpose_a else da, trans_b=not transpose_b, tf32=tf32)
    if db is not None:
        multiply(a, grad_output, db.mT if transpose_b else db, trans_a=not transpose_a, tf32=tf32)
    return da, db
