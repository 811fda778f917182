"""Matrix products of a group, in one launch; in a CUDA graph, in one each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilegym import register_impl
from tilegym_cutile.products import multiply_group, why_no_float8

if TYPE_CHECKING:
    from torch import Tensor


def why_not(group_A: list[Tensor], *_: Any) -> str | None:
    """Why a call cannot be taken, or None."""
    return why_no_float8(group_A[0]) if group_A else None


@register_impl("group_gemm", backend="cutile", supports=why_not)
def group_gemm(
    group_A: list[Tensor],
    group_B: list[Tensor],
    transpose_b: bool,
    out_dtype: torch.dtype | None,
    tf32: bool,
    *,
    static_persistent: bool = True,
    use_tma: bool = True,
) -> list[Tensor]:
    """See `tilegym/specs/group_gemm.py`."""
    products = []
    for a, b in zip(group_A, group_B, strict=True):
        make = torch.empty if a.shape[1] else torch.zeros
        shape = (a.shape[0], b.shape[0 if transpose_b else 1])
        products.append(make(shape, dtype=out_dtype or a.dtype, device=a.device))
    multiply_group(
        group_A, group_B, products, trans_b=transpose_b, tf32=tf32, persistent=static_persistent, use_tma=use_tma
    )
    return products
