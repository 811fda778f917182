"""Root-mean-square normalisation over the last dimensions; the kernels are in `norms.py` and `norms_backward.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tilegym import register_backward, register_impl
from tilegym_cutile import norms, norms_backward

if TYPE_CHECKING:
    from torch import Tensor

    Mode = Literal["static_persistent", "multi_wave_reload", "multi_wave_cached"]


@register_impl("rms_norm", backend="cutile")
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    mode: Mode | None = None,
    *,
    offset: float = 0.0,
) -> Tensor:
    """See `tilegym/specs/rms_norm.py`."""
    columns, chunked = len(normalized_shape), mode == "multi_wave_reload"
    return norms.normalize(input, columns, weight, bias, eps, offset, centered=False, chunked=chunked)


def rms_norm_forward(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    mode: Mode | None = None,
    *,
    offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The output and, for the backward, 1 / root mean square of each row: float32, of the leading dimensions' shape."""
    columns, chunked = len(normalized_shape), mode == "multi_wave_reload"
    rstd = norms.empty_statistic(input, columns)
    y = norms.normalize(input, columns, weight, bias, eps, offset, centered=False, chunked=chunked, rstd=rstd)
    return y, rstd


@register_backward("rms_norm", backend="cutile", forward=rms_norm_forward)
def rms_norm_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    rstd: Tensor,
    *,
    offset: float = 0.0,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias; None for those not in `needs`, or not given."""
    return norms_backward.gradients(grad_output, input, weight, bias, None, rstd, offset, needs)
