"""Matrix product in PyTorch."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.products import product, rounded

_ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


@register_impl("matmul", backend="torch")
def matmul(
    a: Tensor,
    b: Tensor,
    trans_a: bool,
    trans_b: bool,
    out_dtype: torch.dtype | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    bias: Tensor | None,
    activation: str | None,
    residual: Tensor | None,
    tf32: bool,  # noqa: ARG001 - PyTorch looks for itself
) -> Tensor:
    """Added up in float32, rounded once; a: (M, K), b: (K, N), or transposed."""
    result = product(a, b, trans_a, trans_b)
    for scale in (scale_a, scale_b):
        result = result if scale is None else result * scale.reshape(())
    if bias is not None:
        result = result + bias.float()
    if activation is not None:
        result = _ACTIVATIONS[activation](result)
    if residual is not None:
        result = result + residual.float()
    return rounded(result, a.dtype if out_dtype is None else out_dtype)
