"""geglu by Liger-Kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liger_kernel.transformers.functional import liger_geglu

from tilegym import register_impl

if TYPE_CHECKING:
    from torch import Tensor


def why_not(input: Tensor, dim: int = -1, approximate: str = "none") -> str | None:  # noqa: ARG001 - the contract's
    """It has tanh's form alone."""
    return None if approximate == "tanh" else "liger_geglu is for approximate='tanh'"


@register_impl("geglu", backend="liger", supports=why_not)
def geglu(input: Tensor, dim: int = -1, approximate: str = "none") -> Tensor:  # noqa: ARG001 - the contract's
    """It takes the halves apart, the one under gelu first, and copies them, since they are not contiguous."""
    value, gate = input.chunk(2, dim=dim)
    result: Tensor = liger_geglu(gate, value)
    return result
