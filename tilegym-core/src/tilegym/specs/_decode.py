"""What the contracts of attention of one query over many keys have in common, beside `_attention`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from tilegym.contract import Sample, TensorSpec, Way, check_beside, check_int, check_shape, check_tensor
from tilegym.errors import ArgumentValueError, ShapeError
from tilegym.sharding import OUTPUT
from tilegym.specs import _attention
from tilegym.specs._attention import Mask

MOST_LATENT: Final = 512
"""The largest latent size of MLA."""
MOST_PE: Final = 64
"""The largest size of its part that carries positions."""


def check_one_query(op: str, name: str, q: Tensor, dim: int) -> None:
    """`q` must have one query, in dimension `dim`."""
    if q.shape[dim] != 1:
        raise ShapeError(f"{op}: {name} must have one query, in dimension {dim}, got shape {tuple(q.shape)}")


def checked_split(op: str, kv_len_per_split: int | None) -> int | None:
    """How many keys a split has, at least 1; None leaves it to the backend."""
    if kv_len_per_split is None:
        return None
    check_int(op, "kv_len_per_split", kv_len_per_split)
    if kv_len_per_split < 1:
        raise ArgumentValueError(f"{op}: kv_len_per_split must be at least 1, got {kv_len_per_split}")
    return int(kv_len_per_split)


def fake(q: Tensor) -> Tensor:
    """An empty result like q, contiguous."""
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


# -- multi-head latent attention: q (B, H, D), qpe (B, H, Dp), kv (B, Sk, D), kpe (B, Sk, Dp) --------------------------


def checked_latent(op: str, q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float | None) -> float:
    """The shapes must go together; returns the factor of the scores."""
    check_tensor(op, "q", q)
    check_shape(op, "q", q, (None,) * 3)
    batch, heads, size = q.shape
    _check_latent_size(op, "q", size, MOST_LATENT)
    check_beside(op, "qpe", qpe, q, "q", shape=(batch, heads, None), dtypes=(q.dtype,))
    _check_latent_size(op, "qpe", qpe.shape[2], MOST_PE)
    check_beside(op, "kv", kv, q, "q", shape=(batch, None, size), dtypes=(q.dtype,))
    check_beside(op, "kpe", kpe, q, "q", shape=(batch, kv.shape[1], qpe.shape[2]), dtypes=(q.dtype,))
    return _attention.checked_scaling(op, sm_scale, size + qpe.shape[2], name="sm_scale")


def _check_latent_size(op: str, name: str, size: int, most: int) -> None:
    if size == 0:
        raise ShapeError(f"{op}: {name}'s last dimension must be at least 8, got 0")
    _attention.check_size(op, name, size, most)


def latent(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    """The output, (B, H, D), and the base-2 log-sum-exp, (B, H)."""
    output, lse = _attention.attend(*_four_dimensions(q, kv), sm_scale, Mask(), second=_pair(qpe, kpe))
    return output.squeeze(2), lse.squeeze(2) / math.log(2)


def latent_magnitude(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    """The same on absolute values; an error of a score moves the log-sum-exp by at most as much."""
    output = _attention.magnitude(*_four_dimensions(q, kv), sm_scale, Mask(), second=_pair(qpe, kpe)).squeeze(2)
    scores = (q.abs() @ kv.abs().mT + qpe.abs() @ kpe.abs().mT) * abs(sm_scale)
    largest = scores.amax(-1) if scores.shape[-1] else scores.sum(-1)
    return output, (2 + largest + math.log(max(1, kv.shape[1]))) / math.log(2)


def _four_dimensions(q: Tensor, kv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return q[:, :, None], kv[:, None], kv[:, None]


def _pair(qpe: Tensor, kpe: Tensor) -> tuple[Tensor, Tensor]:
    return qpe[:, :, None], kpe[:, None]


def latent_reduction(q: Tensor, qpe: Tensor, kv: Tensor, *_: Any) -> int:
    """Terms of a score and of an output."""
    return q.shape[2] + qpe.shape[2] + kv.shape[1]


def latent_bytes(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, *_: Any) -> int:
    """Of all inputs and the output."""
    return (2 * q.numel() + qpe.numel() + kv.numel() + kpe.numel()) * q.element_size()


def latent_flops(q: Tensor, qpe: Tensor, kv: Tensor, *_: Any) -> int:
    """Of both products."""
    batch, heads, size = q.shape
    return 2 * batch * heads * kv.shape[1] * (2 * size + qpe.shape[2])


def latent_ways(*_: Any) -> Iterator[Way]:
    """By batches; by heads, which share all keys."""
    yield dict.fromkeys(("q", "qpe", "kv", "kpe", OUTPUT), 0)
    yield dict.fromkeys(("q", "qpe", OUTPUT), 1)


def latent_case(name: str, q: tuple[int, int, int], keys: int, pe: int, **more: Any) -> Sample:
    """A case with q: (B, H, D), of `keys` keys and Dp = pe."""
    batch, heads, size = q
    shapes = {"q": q, "qpe": (batch, heads, pe), "kv": (batch, keys, size), "kpe": (batch, keys, pe)}
    layout, fill = more.pop("layout", "contiguous"), more.pop("fill", "normal")
    tensors = {key: TensorSpec(shape=shape, layout=layout, fill=fill) for key, shape in shapes.items()}
    return Sample(name=name, args=tensors | more)


def latent_benchmarks() -> Iterator[Sample]:
    """The cases that are timed."""
    for batch, heads, keys in [(1, 16, 1024), (1, 16, 2048), (32, 128, 8192), (32, 16, 1024), (32, 16, 8192)]:
        yield latent_case(f"B{batch}-H{heads}-S{keys}-D512+64", (batch, heads, 512), keys, 64)
