"""Layer normalisation that returns its statistics, or uses given ones; the kernels are those of `layer_norm_legacy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym import register_backward, register_impl
from tilegym_cutile import norms, norms_backward

if TYPE_CHECKING:
    from torch import Tensor


@register_impl("persistent_layer_norm", backend="cutile")
def persistent_layer_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    mean: Tensor | None = None,
    rstd: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `tilegym/specs/persistent_layer_norm.py`."""
    columns = len(normalized_shape)
    given = None if mean is None or rstd is None else (mean, rstd)
    means, rstds = norms.empty_statistic(input, columns), norms.empty_statistic(input, columns)
    y = norms.normalize(input, columns, weight, bias, eps, 0.0, centered=True, mean=means, rstd=rstds, given=given)
    return y, means, rstds


@register_backward("persistent_layer_norm", backend="cutile")
def persistent_layer_norm_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    row_mean: Tensor,
    row_rstd: Tensor,
    *,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias; None for those not in `needs`, or not given."""
    fixed = mean is not None
    return norms_backward.gradients(grad_output, input, weight, bias, row_mean, row_rstd, 0.0, needs, fixed=fixed)
