"""rms_norm by Liger-Kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liger_kernel.transformers.functional import liger_rms_norm

from tilegym import register_impl

if TYPE_CHECKING:
    from torch import Tensor


def why_not(
    input: Tensor,  # noqa: ARG001 - the contract's parameters
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,  # noqa: ARG001
    bias: Tensor | None = None,
    offset: float = 0.0,  # noqa: ARG001
) -> str | None:
    """It norms the last dimension, with a weight and no bias."""
    if len(normalized_shape) > 1 or weight is None or bias is not None:
        return "liger_rms_norm is for one dimension, with a weight and no bias"
    return None


@register_impl("rms_norm", backend="liger", supports=why_not)
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],  # noqa: ARG001 - the contract's parameters
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,  # noqa: ARG001
    offset: float = 0.0,
) -> Tensor:
    """Not in place: its backward would write into the gradient it is given, which the next call needs."""
    result: Tensor = liger_rms_norm(input, weight, eps, offset=offset, in_place=False)
    return result
