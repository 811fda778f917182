"""Attention in PyTorch, in float32, with all scores at once: what the attention ops here have in common."""

from __future__ import annotations

import torch
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float,
    seen: Tensor,
    *,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    second: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """`softmax(scores) @ v` in float32, 0 where a query sees no key and has no sink.

    q: (B, H, S, D), k: (B, Hk, Sk, D), v: (B, Hk, Sk, Dv); seen: (S, Sk), which keys a query sees; soft_cap bounds the
    scores by tanh; sinks: (H,), a further logit of each head; second: a pair like q and k whose products are added.
    """
    group = q.shape[1] // max(1, k.shape[1])
    scores = _products(q, k, group)
    if second is not None:
        scores = scores + _products(*second, q.shape[1] // max(1, second[1].shape[1]))
    scores = scores * scaling
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = torch.where(seen, scores, torch.finfo(scores.dtype).min)
    if sinks is not None:
        column = sinks.float()[:, None, None].expand(*scores.shape[:3], 1)
        weights = torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1]
    else:
        weights = torch.softmax(scores, -1)
    return torch.where(seen, weights, 0.0) @ _repeated(v, group)


def visible(
    q: Tensor, k: Tensor, *, left: int | None = None, right: int | None = None, start: Tensor | int = 0
) -> Tensor:
    """(S, Sk): whether query i, at position i + start, sees key j, from position - left to position + right."""
    distance = torch.arange(k.shape[2], device=q.device) - torch.arange(q.shape[2], device=q.device)[:, None] - start
    seen = torch.ones_like(distance, dtype=torch.bool)
    if left is not None:
        seen = seen & (distance >= -left)
    if right is not None:
        seen = seen & (distance <= right)
    return seen


def _products(q: Tensor, k: Tensor, group: int) -> Tensor:
    return q.float() @ _repeated(k, group).mT


def _repeated(tensor: Tensor, group: int) -> Tensor:
    """A head of keys or values for each query head, in float32."""
    batch, heads, length, size = tensor.shape
    return tensor.float()[:, :, None].expand(batch, heads, group, length, size).flatten(1, 2)
