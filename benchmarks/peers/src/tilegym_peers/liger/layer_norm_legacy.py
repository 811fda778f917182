"""layer_norm_legacy by Liger-Kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liger_kernel.transformers.functional import liger_layer_norm

from tilegym import register_impl

if TYPE_CHECKING:
    from torch import Tensor


def why_not(
    input: Tensor,  # noqa: ARG001 - the contract's parameters
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,  # noqa: ARG001
    weight_shift: float = 0.0,
) -> str | None:
    """It norms the last dimension, with a weight and a bias."""
    if len(normalized_shape) > 1 or weight is None or bias is None or weight_shift:
        return "liger_layer_norm is for one dimension, with a weight, a bias and no weight_shift"
    return None


@register_impl("layer_norm_legacy", backend="liger", supports=why_not)
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: tuple[int, ...],  # noqa: ARG001 - the contract's parameters
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,  # noqa: ARG001
) -> Tensor:
    result: Tensor = liger_layer_norm(input, weight, bias, eps)
    return result
