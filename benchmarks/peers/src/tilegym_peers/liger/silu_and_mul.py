"""silu_and_mul by Liger-Kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liger_kernel.transformers.functional import liger_swiglu

from tilegym import register_impl

if TYPE_CHECKING:
    from torch import Tensor


def why_not(input: Tensor, out: Tensor | None = None) -> str | None:  # noqa: ARG001 - the contract's parameters
    """It allocates."""
    return None if out is None else "liger_swiglu has no out="


@register_impl("silu_and_mul", backend="liger", supports=why_not)
def silu_and_mul(input: Tensor, out: Tensor | None = None) -> Tensor:  # noqa: ARG001 - the contract's parameters
    """It takes the halves apart, and copies them, since they are not contiguous."""
    result: Tensor = liger_swiglu(*input.chunk(2, dim=-1))
    return result
