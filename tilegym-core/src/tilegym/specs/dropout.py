"""dropout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import (
    Contract,
    Gradient,
    Sample,
    TensorSpec,
    check_flag,
    check_int,
    check_not_expanded,
    check_number,
    check_tensor,
)
from tilegym.errors import ArgumentValueError
from tilegym.op import dispatch
from tilegym.sharding import whole


@dispatch("dropout")
def dropout(
    x: Tensor, seed: int, p: float = 0.5, training: bool = True, inplace: bool = False, **kwargs: Any
) -> Tensor:
    """Dropout whose mask is a function of the seed: `torch.where(u >= p, x / (1 - p), 0)`, with u uniform in [0, 1).

    u of the element of row-major index i is `word * 2**-32`, where `word` is word i % 4 of Philox4x32-10 for the
    counter i // 4 and the key `seed % 2**64`. So a seed gives the same mask on every backend, device and memory layout,
    and in the backward, for which nothing is saved; the caller has to choose another seed for each call.

    Args:
        x: any shape, float32, float16 or bfloat16, any strides.
        seed: any int; those that differ by a multiple of 2**64 are one.
        p: the probability of being dropped, from 0 to 1.
        training: False: nothing is dropped.
        inplace: write into x, and return it.
        **kwargs: options of the backend.

    Returns:
        Tensor of x's shape and dtype, contiguous; rounded once. x itself if `inplace`, if p is 0 or if not `training`.

    Raises:
        DtypeError: x has another dtype.
        ArgumentTypeError: seed is no int, p no number, training or inplace no bool.
        ArgumentValueError: p is not from 0 to 1; x is expanded (stride 0) and to be written.

    Gradient: x.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014; Salmon et al.,
    "Parallel Random Numbers: As Easy as 1, 2, 3", 2011 (Philox).
    """
    raise NotImplementedError


def canonical(
    x: Tensor, seed: int, p: float = 0.5, training: bool = True, inplace: bool = False
) -> tuple[Tensor, int, float, Tensor | None]:
    check_tensor("dropout", "x", x)
    check_int("dropout", "seed", seed)
    check_number("dropout", "p", p)
    if not 0 <= p <= 1:
        raise ArgumentValueError(f"dropout: p must be from 0 to 1, got {p}")
    training = check_flag("dropout", "training", training)
    if check_flag("dropout", "inplace", inplace):
        check_not_expanded("dropout", "x", x)
    return x, _as_int64(seed), float(p) if training else 0.0, x if inplace else None


def _as_int64(seed: int) -> int:
    """The seed modulo 2**64, as a signed number: what an op of PyTorch can be given."""
    return seed if -(2**63) <= seed <= 2**63 - 1 else (seed + 2**63) % 2**64 - 2**63


def philox(counter: Tensor, key: int) -> Tensor:
    """The four words of Philox4x32-10 for each of n 64-bit counters: (n, 4), int64.

    Products of 32-bit numbers are put together from halves, so that none exceeds 63 bits.
    """
    low = 2**32 - 1

    def product(number: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
        lower, upper = number * (multiplier & 0xFFFF), number * (multiplier >> 16)
        total = lower + ((upper & 0xFFFF) << 16)
        return (upper >> 16) + (total >> 32), total & low

    words = [counter & low, counter >> 32, torch.zeros_like(counter), torch.zeros_like(counter)]
    for turn in range(10):
        keys = [(part + turn * step) & low for part, step in ((key, 0x9E3779B9), (key >> 32, 0xBB67AE85))]
        (high_0, low_0), (high_1, low_1) = product(words[0], 0xD2511F53), product(words[2], 0xCD9E8D57)
        words = [high_1 ^ words[1] ^ keys[0], low_1, high_0 ^ words[3] ^ keys[1], low_0]
    return torch.stack(words, -1)


def kept(x: Tensor, seed: int, p: float) -> Tensor:
    """Which elements of x are kept."""
    elements = x.numel()
    words = philox(torch.arange((elements + 3) // 4, device=x.device), seed).flatten()[:elements]
    return (words.double() * 2.0**-32 >= p).reshape(x.shape)


def reference(x: Tensor, seed: int, p: float, out: Tensor | None) -> Tensor:
    return torch.where(kept(x, seed, p), x, 0.0) / (1 - p if p < 1 else 1)


def magnitude(x: Tensor, seed: int, p: float, out: Tensor | None) -> Tensor:
    return reference(x.abs(), seed, p, out)


def gradient_magnitude(grad_output: Tensor, x: Tensor, seed: int, p: float, out: Tensor | None) -> tuple[Tensor]:
    return (reference(grad_output, seed, p, out),)


def samples() -> Iterator[Sample]:
    def case(name: str, shape: tuple[int, ...], **more: Any) -> Sample:
        return Sample(name=name, args={"x": TensorSpec(shape=shape, fill=more.pop("fill", "normal")), "seed": 7} | more)

    for shape in [(), (0, 8), (6, 33), (2, 3, 4, 65), (3, 5001)]:
        yield case(f"x{shape}", shape)
    for p in (0, 0.1, 1):
        yield case(f"p{p}", (6, 800), p=p)
    for seed in (-1, 2**63, 2**64 + 7):
        yield case(f"seed{seed}", (6, 800), seed=seed)
    yield case("not-training", (6, 800), training=False)
    yield case("inplace", (6, 801), inplace=True)
    for fill in ("special", "large"):
        yield case(fill, (8, 600), fill=fill)


def benchmarks() -> Iterator[Sample]:
    for m, n in [(256, 1024), (1024, 1024), (4096, 1024), (4096, 4096), (8192, 28672)]:
        yield Sample(name=f"{m}x{n}", args={"x": TensorSpec(shape=(m, n)), "seed": 7})


dropout.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda x, *_: 1,
    fake=lambda x, seed, p, out: torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=lambda x, *_: 2 * x.numel() * x.element_size(),
    flops=lambda x, *_: 2 * x.numel(),
    sharding=whole,  # a part of x has other indices, and so another mask
    identity=lambda x, seed, p, out: x if p == 0 else None,
    gradient=Gradient(inputs=("x",), magnitude=gradient_magnitude, saved=(), like=("grad_output",)),
)
