"""What several ops compute alike."""

import math

import torch
from torch import Tensor


def gelu(x: Tensor, approximate: str) -> Tensor:
    """GELU of float32.

    PyTorch's own gelu, and its gradient more so, is off by several units in the last place where 1 + erf or 1 - tanh²
    cancels. erfc and logsigmoid, whose derivative is sigmoid(-x), do not.
    """
    if approximate == "tanh":
        near = x.clamp(-16, 16)  # where sigmoid is 0 or 1: farther, the slope of the cube would overflow
        logit = 2 * math.sqrt(2 / math.pi) * (near + 0.044715 * near**3)
        return x * torch.exp(torch.nn.functional.logsigmoid(logit))
    return x * (torch.erfc(x * -math.sqrt(0.5)) / 2)
