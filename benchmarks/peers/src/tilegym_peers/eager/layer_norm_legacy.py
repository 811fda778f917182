"""layer_norm_legacy in PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from tilegym import register_impl


def why_not(*canonical: object) -> str | None:
    """PyTorch's has none."""
    return "torch.nn.functional.layer_norm has no weight_shift" if canonical[-1] else None


@register_impl("layer_norm_legacy", backend="eager", supports=why_not)
def layer_norm_legacy(
    input: Tensor,
    normalized_shape: tuple[int, ...],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    weight_shift: float = 0.0,  # noqa: ARG001 - the contract's parameters
) -> Tensor:
    return torch.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)
