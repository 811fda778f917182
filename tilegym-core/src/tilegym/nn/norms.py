"""Norms over the last dimensions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tilegym.ops import layer_norm_legacy, rms_norm


class RMSNorm(nn.RMSNorm):
    """`torch.nn.RMSNorm` on `tilegym.ops.rms_norm`; eps=None means 2^-23 for every dtype, as it does there."""

    def forward(self, x: Tensor) -> Tensor:
        """The norm of x: (..., *normalized_shape)."""
        eps = torch.finfo(torch.float32).eps if self.eps is None else self.eps
        return rms_norm(x, self.normalized_shape, self.weight, eps)


class LayerNorm(nn.LayerNorm):
    """`torch.nn.LayerNorm` on `tilegym.ops.layer_norm_legacy`."""

    def forward(self, input: Tensor) -> Tensor:
        """The norm of input: (..., *normalized_shape)."""
        return layer_norm_legacy(input, self.normalized_shape, self.weight, self.bias, self.eps)
