"""Layer normalisation over the last dimensions; the kernels are in `norms.py` and `norms_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile import norms, norms_backward

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("layer_norm_legacy", backend="cutile")
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> Tensor:
    """See `tilegym/specs/layer_norm_legacy.py`."""
    return norms.normalize(input, len(normalized_shape), weight, bias, eps, weight_shift, centered=True)


def layer_norm_legacy_forward(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output and, for the backward, each row's mean and 1 / deviation: float32 in the leading dimensions' shape."""
    columns = len(normalized_shape)
    mean, rstd = norms.empty_statistic(input, columns), norms.empty_statistic(input, columns)
    y = norms.normalize(input, columns, weight, bias, eps, weight_shift, centered=True, mean=mean, rstd=rstd)
    return y, mean, rstd


@register_backward("layer_norm_legacy", backend="cutile", forward=layer_norm_legacy_forward)
def layer_norm_legacy_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    *,
    weight_shift: float = 0.0,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias; None for those not in `needs`, or not given."""
    return norms_backward.gradients(grad_output, input, weight, bias, mean, rstd, weight_shift, needs)
