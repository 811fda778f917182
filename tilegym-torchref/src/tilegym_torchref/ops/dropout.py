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
    key = torch.full((), seed, dtype=torch.int64, device=x.device)  # the compiler cannot shift an int that it traces
    words = philox(
        torch.stack([counters & _LOW, counters >> 32, nothing, nothing]), torch.stack([key & _LOW, key >> 32 & _LOW])
    )
    kept = words.t().flatten()[: x.numel()] >= math.ceil(p * 2**32)
    scale = 1 / (1 - p) if p < 1 else 0.0
    result = torch.where(kept.reshape(x.shape), x.float() * scale, 0.0).to(x.dtype).contiguous()
    return result if out is None else out.copy_(result)


def philox(counter: Tensor, key: Tensor) -> Tensor:
    """Philox4x32-10 on words of 32 bits, as int64; counter: (4, n), key: (2,), returns (4, n)."""

    def pair(first: int, second: int) -> Tensor:
        return torch.stack([torch.full_like(key[0], first), torch.full_like(key[0], second)])

    multipliers, step = pair(0xD2511F53, 0xCD9E8D57)[:, None], pair(0x9E3779B9, 0xBB67AE85)
    even, odd = counter[::2], counter[1::2]
    for turn in range(10):
        products = even * multipliers  # modulo 2**64: their bits are those of unsigned products
        keys = (key + turn * step & _LOW)[:, None]
        even, odd = (products >> 32 & _LOW).flip(0) ^ odd ^ keys, (products & _LOW).flip(0)
    return torch.stack([even, odd], 1).flatten(0, 1)
