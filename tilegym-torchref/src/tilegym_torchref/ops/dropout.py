"""dropout in PyTorch."""

import math

import torch
from torch import Tensor

from tilegym import register_impl

_LOW = 2**32 - 1


@register_impl("dropout", backend="torch")
def dropout(x: Tensor, seed: int, p: float, out: Tensor | None = None) -> Tensor:
    """In float32, rounded once; 0 < p."""
    counters = torch.arange((x.numel() + 3) // 4, device=x.device)
    nothing = torch.zeros_like(counters)
    words = philox((counters & _LOW, counters >> 32, nothing, nothing), (seed & _LOW, (seed >> 32) & _LOW))
    kept = torch.stack(words, -1).flatten()[: x.numel()] >= math.ceil(p * 2**32)
    scale = 1 / (1 - p) if p < 1 else 0.0
    result = torch.where(kept.reshape(x.shape), x.float() * scale, 0.0).to(x.dtype).contiguous()
    return result if out is None else out.copy_(result)


def philox(counter: tuple[Tensor, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four words of 32 bits, as int64, for a counter of four words and a key of two."""
    c0, c1, c2, c3 = counter
    for turn in range(10):
        k0, k1 = (key[0] + turn * 0x9E3779B9) & _LOW, (key[1] + turn * 0xBB67AE85) & _LOW
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # modulo 2**64: their bits are those of unsigned products
        c0, c1, c2, c3 = (b >> 32) & _LOW ^ c1 ^ k0, b & _LOW, (a >> 32) & _LOW ^ c3 ^ k1, a & _LOW
    return c0, c1, c2, c3
