"""mla_decoding in PyTorch."""

import math

import torch
from torch import Tensor

from tilegym import register_impl


@register_impl("mla_decoding", backend="torch")
def mla_decoding(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    """In float32, rounded once; q: (B, H, D), qpe: (B, H, Dp), kv: (B, Sk, D), kpe: (B, Sk, Dp)."""
    values = kv.float()
    scores = (q.float() @ values.mT + qpe.float() @ kpe.float().mT) * sm_scale
    output = torch.softmax(scores, -1) @ values
    return output.to(q.dtype).contiguous(), torch.logsumexp(scores, -1) * (1 / math.log(2))
