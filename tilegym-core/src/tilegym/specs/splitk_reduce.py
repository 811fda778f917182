"""splitk_reduce."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import (
    Contract,
    Sample,
    TensorSpec,
    Way,
    check_beside,
    check_int,
    check_not_expanded,
    check_tensor,
)
from tilegym.errors import ArgumentValueError, ShapeError
from tilegym.op import dispatch
from tilegym.sharding import OUTPUT
from tilegym.specs._attention import HINTS

_OP = "splitk_reduce"


@dispatch("splitk_reduce")
def splitk_reduce(
    attn_splitk_out: Tensor, lse_splitk_out: Tensor, attn_out: Tensor, S_kv: int, **kwargs: Any
) -> Tensor:
    """Attention over all keys, from attention over each of several splits of them: the mean that their LSE weigh.

        weights = torch.softmax(lse_splitk_out * math.log(2), -1)
        attn_out = (weights[..., None] * attn_splitk_out).sum(-2)

    A split whose LSE is -inf saw no key, and counts for nothing, whatever attn_splitk_out holds of it; where no split
    saw one, the result is 0.

    Args:
        attn_splitk_out: (B, H, splits, D), float32, float16 or bfloat16, any strides: each split's attention.
        lse_splitk_out: (B, H, splits), float32, on the same device: log2 of its sum of exponentials.
        attn_out: (B, H, D), float32, float16 or bfloat16, on the same device, any strides; written and returned.
        S_kv: how many keys there were; nothing depends on it.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        attn_out. Computed in float32 and rounded once.

    Raises:
        ShapeError: the shapes do not go together, or D is over 1024.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError, ArgumentValueError: S_kv is no int, or negative; attn_out is expanded (stride 0).

    Source: Dao et al., "Flash-Decoding for long-context inference", 2023.
    """
    raise NotImplementedError


MAX_SIZE = 1024


def canonical(
    attn_splitk_out: Tensor, lse_splitk_out: Tensor, attn_out: Tensor, S_kv: int
) -> tuple[Tensor, Tensor, Tensor]:
    check_tensor(_OP, "attn_splitk_out", attn_splitk_out)
    if attn_splitk_out.dim() != 4:
        shape = tuple(attn_splitk_out.shape)
        raise ShapeError(f"{_OP}: attn_splitk_out must have shape (B, H, splits, D), got {shape}")
    batch, heads, splits, size = attn_splitk_out.shape
    if size > MAX_SIZE:
        raise ShapeError(f"{_OP}: the last dimension of attn_splitk_out must be at most {MAX_SIZE}, got {size}")
    beside = attn_splitk_out, "attn_splitk_out"
    check_beside(_OP, "lse_splitk_out", lse_splitk_out, *beside, shape=(batch, heads, splits), dtypes=(torch.float32,))
    check_beside(_OP, "attn_out", attn_out, *beside, shape=(batch, heads, size))
    check_not_expanded(_OP, "attn_out", attn_out)
    check_int(_OP, "S_kv", S_kv)
    if S_kv < 0:
        raise ArgumentValueError(f"{_OP}: S_kv must not be negative, got {S_kv}")
    return attn_splitk_out, lse_splitk_out, attn_out


def _below_highest(lse: Tensor) -> Tensor:
    """How far each LSE is below the highest; -inf of an empty split."""
    highest = lse.amax(-1, keepdim=True) if lse.shape[-1] else lse
    return lse - torch.where(highest == -math.inf, 0.0, highest)


def _mean(attn_splitk_out: Tensor, weights: Tensor, factor: Tensor | float = 1.0) -> Tensor:
    """The mean of what each split holds, times a factor, by weights, over dimension 2; 0 where all are 0."""
    total = weights.sum(-1, keepdim=True)
    shares = weights / torch.where(total == 0, 1.0, total) * factor
    return torch.where(weights[..., None] == 0, 0.0, shares[..., None] * attn_splitk_out).sum(2)


def reference(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> Tensor:
    return _mean(attn_splitk_out, torch.exp2(_below_highest(lse_splitk_out)))


def magnitude(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> Tensor:
    """The difference of two LSE is rounded, and that error is a factor of the weight."""
    below = _below_highest(lse_splitk_out)
    return _mean(attn_splitk_out.abs(), torch.exp2(below), 1 - torch.where(below == -math.inf, 0.0, below))


def fake(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> Tensor:
    if out is not None:
        return out
    batch, heads, _, size = attn_splitk_out.shape
    return torch.empty((batch, heads, size), dtype=attn_splitk_out.dtype, device=attn_splitk_out.device)


def _case(name: str, shape: tuple[int, int, int, int], **more: Any) -> Sample:
    """A case of (B, H, splits, D)."""
    batch, heads, splits, size = shape
    args: dict[str, Any] = {
        "attn_splitk_out": TensorSpec(shape=shape),
        "lse_splitk_out": TensorSpec(shape=(batch, heads, splits), dtype=torch.float32),
        "attn_out": TensorSpec(shape=(batch, heads, size)),
        "S_kv": 1000,
    }
    return Sample(name=name, args=args | more)


def samples() -> Iterator[Sample]:
    def out(*shape: int, **more: Any) -> TensorSpec:
        return TensorSpec(shape=shape, **more)

    for shape in [(0, 2, 3, 8), (2, 3, 0, 8), (2, 3, 4, 0)]:
        yield _case(f"empty{shape}", shape)
    yield _case("one", (1, 1, 1, 1), attn_out=out(1, 1, 1, layout="sliced"))
    yield _case("odd", (2, 3, 5, 40), attn_out=out(2, 3, 40, layout="transposed"))
    yield _case("many", (1, 2, 77, 264), attn_out=out(1, 2, 264, layout="sliced"))
    float32 = TensorSpec(shape=(2, 3, 4, 64), dtype=torch.float32, layout="expanded")
    yield _case("float32-partials", (2, 3, 4, 64), attn_splitk_out=float32)
    for layout in ("transposed", "sliced", "strided"):
        laid_out = TensorSpec(shape=(2, 3, 4, 24), layout=layout)
        lse = TensorSpec(shape=(2, 3, 4), dtype=torch.float32, layout=layout, fill="large")
        yield _case(layout, (2, 3, 4, 24), attn_splitk_out=laid_out, lse_splitk_out=lse)
    special = TensorSpec(shape=(2, 3, 6), dtype=torch.float32, fill="special", layout="strided")
    yield _case("special", (2, 3, 6, 16), lse_splitk_out=special)


def ways(attn_splitk_out: Tensor, *_: Any) -> Iterator[Way]:
    """By batches or heads, or by elements of a head."""
    for dim in range(2):
        yield {"attn_splitk_out": dim, "lse_splitk_out": dim, OUTPUT: dim}
    yield {"attn_splitk_out": 3, OUTPUT: 2}


def benchmarks() -> Iterator[Sample]:
    for batch, heads, splits, size in [(1, 32, 16, 128), (16, 32, 2, 128), (32, 16, 16, 512), (64, 128, 16, 512)]:
        shape = (batch, heads, splits, size)
        partials = TensorSpec(shape=shape, dtype=torch.float32)
        yield _case(f"B{batch}-H{heads}-splits{splits}-D{size}", shape, attn_splitk_out=partials)


def bytes_moved(attn_splitk_out: Tensor, lse_splitk_out: Tensor, out: Tensor | None = None) -> int:
    tensors = (attn_splitk_out, lse_splitk_out, fake(attn_splitk_out, lse_splitk_out, out))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


splitk_reduce.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda attn_splitk_out, *_: attn_splitk_out.shape[2],
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=lambda attn_splitk_out, *_: 2 * attn_splitk_out.numel(),
    sharding=ways,
    hints=HINTS,
)
