"""Matrix products of a group and their gradients: as `multiply_group` has it, in one launch for each side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilegym import register_backward, register_impl
from tilegym_cutile.products import multiply_group, why_no_float8

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    members = []
    for a, b in zip(group_A, group_B, strict=True):
        make = torch.empty if a.shape[1] else torch.zeros
        shape = (a.shape[0], b.shape[0 if transpose_b else 1])
        members.append((a, b, make(size=shape, dtype=out_dtype or a.dtype, device=a.device)))
    multiply_group(members, trans_b=transpose_b, tf32=tf32, persistent=static_persistent, use_tma=use_tma)
    return [c for _, _, c in members]


@register_backward("group_gemm", backend="cutile")
def group_gemm_backward(
    grad_outputs: list[Tensor | None],
    group_A: list[Tensor],
    group_B: list[Tensor],
    transpose_b: bool,
    tf32: bool,
    needs: Sequence[Sequence[bool]],
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """The gradients of the members of group_A and group_B, laid out as those; None for what is not in `needs`."""
    of_A, of_B = (_new_gradients(*each, grad_outputs) for each in zip((group_A, group_B), needs, strict=True))
    for_A, for_B = [], []
    for a, b, grad, da, db in zip(group_A, group_B, grad_outputs, of_A, of_B, strict=True):
        if grad is not None and da is not None:
            for_A.append((grad, b, da))
        if grad is not None and db is not None:
            for_B.append((a, grad, db.mT if transpose_b else db))
    multiply_group(for_A, trans_b=not transpose_b, tf32=tf32)
    multiply_group(for_B, trans_a=True, tf32=tf32)
    return of_A, of_B


def _new_gradients(
    group: list[Tensor], needed: Sequence[bool], grad_outputs: list[Tensor | None]
) -> list[Tensor | None]:
    """For `multiply_group` to fill, which leaves out those that have no terms."""
    found: list[Tensor | None] = []
    for one, wanted, grad in zip(group, needed, grad_outputs, strict=True):
        if wanted and grad is not None:
            found.append(torch.empty_like(one) if grad.numel() else torch.zeros_like(one))
        else:
            found.append(None)
    return found
