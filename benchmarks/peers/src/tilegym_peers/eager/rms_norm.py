"""rms_norm in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


def why_not(*canonical: object) -> str | None:
    """PyTorch's has none."""
    return "torch.nn.functional.rms_norm has no offset" if canonical[-1] else None


@register_impl("rms_norm", backend="eager", supports=why_not)
def rms_norm(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    bias: Tensor | None = None,
    offset: float = 0.0,  # noqa: ARG001 - the contract's parameters
) -> Tensor:
    y = torch.nn.functional.rms_norm(input, normalized_shape, weight, eps)
    return y if bias is None else y + bias
