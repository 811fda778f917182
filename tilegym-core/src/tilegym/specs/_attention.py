"""What the contracts of attention have in common: checks, the float64 reference, the scale of its rounding errors.

Tensors here are q (B, H, S, D), k, v (B, Hk, Sk, D): each of the Hk key and value heads serves H / Hk query heads that
lie together. In the maths, logits have one column more than there are keys, that of the sinks: -inf without sinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from tilegym.contract import (
    FLOATS,
    Contract,
    Fill,
    Gradient,
    Layout,
    Sample,
    TensorSpec,
    Way,
    check_beside,
    check_device,
    check_int,
    check_shape,
    check_tensor,
)
from tilegym.errors import ArgumentTypeError, ShapeError
from tilegym.sharding import OUTPUT

MOST: Final = 256
"""The largest head size of most ops."""
HINTS: Final = {"has_backward": (None, False, True), "kernel_configs": None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mask:
    """Query i, at position p = i + start, sees the keys p - left, ..., p + right."""

    left: int | None = None
    """None: there is no such end."""
    right: int | None = None
    start: Tensor | int = 0
    """A tensor has one element."""

    def visible(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """(S, Sk): whether query i sees key j."""
        position = torch.arange(queries, device=device)[:, None] + self.start
        key = torch.arange(keys, device=device)
        seen = torch.ones((queries, keys), dtype=torch.bool, device=device)
        if self.left is not None:
            seen = seen & (key >= position - self.left)
        if self.right is not None:
            seen = seen & (key <= position + self.right)
        return seen

    def pairs(self, queries: int, keys: int) -> int:
        """How many (query, key) see each other; a start in a tensor counts as 0."""
        start = self.start if isinstance(self.start, int) else 0
        left = keys + queries + abs(start) if self.left is None else self.left
        right = keys + queries + abs(start) if self.right is None else self.right
        positions = range(start, start + queries)
        return sum(max(0, min(keys - 1, p + right) - max(0, p - left) + 1) for p in positions)


# -- checks -----------------------------------------------------------------------------------------------------------


def check_qkv(
    op: str, q: Tensor, k: Tensor, v: Tensor, *, most: int = MOST, dtypes: tuple[torch.dtype, ...] = FLOATS
) -> None:
    """The shapes q (B, H, S, D) and k, v (B, Hk, Sk, D) must go together."""
    check_tensor(op, "q", q, dtypes=dtypes)
    check_shape(op, "q", q, (None,) * 4)
    batch, heads, _, size = q.shape
    check_size(op, "q", size, most)
    check_beside(op, "k", k, q, "q", shape=(batch, None, None, size), dtypes=(q.dtype,))
    check_beside(op, "v", v, q, "q", shape=k.shape, dtypes=(q.dtype,))
    check_groups(op, heads, k.shape[1])


def check_size(op: str, name: str, size: int, most: int = MOST) -> None:
    """A head size must be a multiple of 8, and not too large."""
    if size % 8 or size > most:
        raise ShapeError(f"{op}: {name}'s last dimension must be a multiple of 8 and at most {most}, got {size}")


def check_groups(op: str, heads: int, kv_heads: int) -> None:
    """Each key and value head must serve as many query heads as the others."""
    if heads % kv_heads if kv_heads else heads:
        raise ShapeError(f"{op}: the number of query heads, {heads}, must be a multiple of that of keys, {kv_heads}")


def checked_scaling(op: str, scaling: object, size: int, *, name: str = "scaling") -> float:
    """The factor of the scores; None means 1 / sqrt(size), where size is the length of what is multiplied."""
    if scaling is None:
        return 1.0 / math.sqrt(max(1, size))
    if isinstance(scaling, bool) or not isinstance(scaling, (int, float)):
        raise ArgumentTypeError(f"{op}: {name} must be a number or None, got {type(scaling).__name__}")
    return float(scaling)


def check_bool(op: str, name: str, value: object) -> None:
    """`value` must be True or False."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{op}: {name} must be a bool, got {type(value).__name__}")


def checked_window(op: str, name: str, value: int | None) -> int:
    """The number of a window; no window, None or not positive, is 0."""
    if value is None:
        return 0
    check_int(op, name, value)
    return max(0, int(value))


def checked_start(op: str, start: object, q: Tensor, q_name: str) -> tuple[int, Tensor | None]:
    """The position of the first query as an int, or 0 and a tensor of one integer on q's device that holds it."""
    if not isinstance(start, Tensor):
        if isinstance(start, bool) or not isinstance(start, (int, torch.SymInt)):
            raise ArgumentTypeError(f"{op}: start_q must be an int or a tensor of one, got {type(start).__name__}")
        return int(start), None
    check_tensor(op, "start_q", start, dtypes=(torch.int64, torch.int32))
    check_device(op, "start_q", start, q, q_name)
    if start.numel() != 1:
        raise ShapeError(f"{op}: start_q must be an int or a tensor of one, got shape {tuple(start.shape)}")
    return 0, start


# -- the maths, in float64 --------------------------------------------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float,
    mask: Mask,
    *,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    second: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """`softmax(scores) @ v`, and the natural log-sum-exp of each row of scores, sinks among them.

    A query that sees no key, and has no sink, gets 0 and -inf, and all of its gradients are 0.

    Args:
        q: (B, H, S, D).
        k: (B, Hk, Sk, D).
        v: (B, Hk, Sk, Dv).
        scaling: the factor of the products.
        mask: what each query sees.
        soft_cap: scores become `soft_cap * tanh(scores / soft_cap)`, before the mask.
        sinks: (H,): a further logit of each head, for which there is no value.
        second: (B, H, S, Dp) and (B, H or a divisor, Sk, Dp), whose products are added to those of q and k.

    Returns:
        (B, H, S, Dv) and (B, H, S).
    """
    weights, lse = _softmax(_logits(q, k, scaling, mask, soft_cap, sinks, second))
    return weights[..., :-1] @ _for_each_query_head(v, q), lse


def magnitude(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float,
    mask: Mask,
    *,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    second: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """The output on absolute values: an error of a score moves the output towards that key's value."""
    weights, _ = _softmax(_logits(q, k, scaling, mask, soft_cap, sinks, second))
    values = _for_each_query_head(v, q)
    output = (weights[..., :-1] @ values).abs()
    uncertain = weights * (1 + _absolute_logits(q, k, scaling, sinks, second))
    return uncertain[..., :-1] @ values.abs() + uncertain.sum(-1, keepdim=True) * output


def gradient_magnitude(
    grad_output: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scaling: float,
    mask: Mask,
    *,
    soft_cap: float | None = None,
    sinks: Tensor | None = None,
    second: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """The gradients on absolute values: of q, k, v, then of `second`'s two and of sinks, as they are given."""
    weights, _ = _softmax(_logits(q, k, scaling, mask, soft_cap, sinks, second))
    values = _for_each_query_head(v, q)
    output = (weights[..., :-1] @ values).abs()
    uncertain = weights * (1 + _absolute_logits(q, k, scaling, sinks, second))
    delta = (grad_output * output).sum(-1, keepdim=True)
    grad_scores = uncertain[..., :-1] * (grad_output @ values.abs().mT + delta) * abs(scaling)
    if soft_cap is not None:
        grad_scores = grad_scores * (1 + torch.tanh(_products(q, k, scaling, second) / soft_cap).square())
    found = [*_of_products(grad_scores, q, k), _shared(uncertain[..., :-1].mT @ grad_output, v)]
    if second is not None:
        found += _of_products(grad_scores, *second)
    if sinks is not None:
        found.append((uncertain[..., -1:] * delta).sum((0, 2, 3)))
    return tuple(found)


def _logits(
    q: Tensor,
    k: Tensor,
    scaling: float,
    mask: Mask,
    soft_cap: float | None,
    sinks: Tensor | None,
    second: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """(B, H, S, Sk + 1): what softmax is taken of."""
    scores = _products(q, k, scaling, second)
    if soft_cap is not None:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(~mask.visible(q.shape[2], k.shape[2], q.device), -math.inf)
    return _with_sinks(scores, scores.new_full((1,), -math.inf) if sinks is None else sinks)


def _absolute_logits(
    q: Tensor, k: Tensor, scaling: float, sinks: Tensor | None, second: tuple[Tensor, Tensor] | None
) -> Tensor:
    absolute = None if second is None else (second[0].abs(), second[1].abs())
    scores = _products(q.abs(), k.abs(), abs(scaling), absolute)
    return _with_sinks(scores, scores.new_zeros(1) if sinks is None else sinks.abs().nan_to_num(posinf=0))


def _products(q: Tensor, k: Tensor, scaling: float, second: tuple[Tensor, Tensor] | None) -> Tensor:
    scores = q @ _for_each_query_head(k, q).mT
    if second is not None:
        scores = scores + second[0] @ _for_each_query_head(second[1], q).mT
    return scores * scaling


def _with_sinks(scores: Tensor, sinks: Tensor) -> Tensor:
    return torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)], -1)


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The weights and the log-sum-exp of each row; a row of nothing but -inf has weights 0."""
    peak = logits.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(logits.dtype).min)
    powers = torch.exp(logits - peak)
    total = powers.sum(-1, keepdim=True)  # at least 1, or 0 where there is nothing
    return powers / total.clamp_min(1), (peak + total.log()).squeeze(-1)


def _for_each_query_head(tensor: Tensor, q: Tensor) -> Tensor:
    """(B, Hk, ...) → (B, H, ...)."""
    return tensor.repeat_interleave(q.shape[1] // max(1, tensor.shape[1]), 1)


def _shared(gradient: Tensor, like: Tensor) -> Tensor:
    """(B, H, ...) → (B, Hk, ...): the sum over query heads that share a head of `like`."""
    batch, heads = like.shape[:2]
    group = gradient.shape[1] // max(1, heads)
    return gradient.reshape(batch, heads, group, *gradient.shape[2:]).sum(2)


def _of_products(grad_scores: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of q and k, on absolute values."""
    return grad_scores @ _for_each_query_head(k, q).abs(), _shared(grad_scores.mT @ q.abs(), k)


# -- the rest of a contract with q (B, H, S, D) and k, v (B, Hk, Sk, D) -----------------------------------------------


def reduction(q: Tensor, k: Tensor, *_: Any) -> int:
    """Terms of a score and of an output."""
    return q.shape[3] + k.shape[2]


def gradient_reduction(q: Tensor, k: Tensor) -> tuple[int, int, int]:
    """The same of the gradients of q, k and v: of the last two, over all queries that share a head."""
    shared = q.shape[2] * q.shape[1] // max(1, k.shape[1])
    return q.shape[3] + k.shape[2], q.shape[3] + shared, q.shape[3] + shared


def fake(q: Tensor, *_: Any) -> Tensor:
    """An empty output like q."""
    return torch.empty_like(q)


def fake_lse(q: Tensor, *_: Any) -> tuple[Tensor]:
    """The residual of every op here: the log-sum-exp of each row of scores, (B, H, S), float32."""
    return (torch.empty(q.shape[:3], dtype=torch.float32, device=q.device),)


def flops(q: Tensor, k: Tensor, mask: Mask, size: int | None = None) -> int:
    """Of the two products, for those pairs that see each other; size: what is multiplied for a pair, if not 2 D."""
    batch, heads, queries, columns = q.shape
    return 2 * batch * heads * mask.pairs(queries, k.shape[2]) * (2 * columns if size is None else size)


def bytes_moved(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> int:
    """Of q, k, v and the output."""
    return (2 * q.numel() + k.numel() + v.numel()) * q.element_size()


def ways(q: Tensor, k: Tensor, *_: Any) -> Iterator[Way]:
    """By batches; by heads, if each process then has the keys of its queries."""
    yield dict.fromkeys(("q", "k", "v", OUTPUT), 0)
    if k.shape[1] == 1:
        yield {"q": 1, OUTPUT: 1}
    elif splits_evenly(k, k.shape[1]):
        yield dict.fromkeys(("q", "k", "v", OUTPUT), 1)


def splits_evenly(tensor: Tensor, size: int) -> bool:
    """Whether all processes of a DTensor would have the same part of a dimension of this size."""
    mesh = getattr(tensor, "device_mesh", None)
    return mesh is None or size % mesh.size() == 0


def case(
    name: str,
    q: tuple[int, int, int, int],
    keys: tuple[int, int],
    *,
    layout: Layout = "contiguous",
    fill: Fill = "normal",
    **more: Any,
) -> Sample:
    """A case with q: (B, H, S, D) and keys: (Hk, Sk), and what else the op takes."""
    shape = (q[0], *keys, q[3])
    tensors = {
        "q": TensorSpec(shape=q, layout=layout, fill=fill),
        "k": TensorSpec(shape=shape, layout=layout, fill=fill),
        "v": TensorSpec(shape=shape, layout=layout),
    }
    return Sample(name=name, args=tensors | more)


Form = tuple[tuple[Tensor, Tensor, Tensor, float, Mask], dict[str, Any]]
"""Arguments of `attend`, and its options."""


def contract_of(form: Callable[..., Form], **own: Any) -> Contract:
    """The contract of an op that is `attend` of q, k and v, with their gradients.

    Args:
        form: from the op's canonical arguments, of which q, k and v come first, those of `attend`.
        **own: what is the op's own: canonical, reference, samples, benchmarks, dtypes.
    """

    def of_form(function: Callable[..., Any]) -> Callable[..., Any]:
        def of_canonical(*canonical: Any) -> Any:
            args, options = form(*canonical)
            return function(*args, **options)

        return of_canonical

    def of_gradients(grad_output: Tensor, *canonical: Any) -> tuple[Tensor, ...]:
        args, options = form(*canonical)
        return gradient_magnitude(grad_output, *args, **options)

    counted = of_form(lambda q, k, v, scaling, mask, **_: flops(q, k, mask))
    return Contract(
        magnitude=of_form(magnitude),
        reduction=reduction,
        rounded_between=True,
        fake=fake,
        bytes_moved=bytes_moved,
        flops=counted,
        gradient=Gradient(
            inputs=("q", "k", "v"),
            magnitude=of_gradients,
            saved=("q", "k", "v", "output", "lse"),
            like=("q", "k", "v"),
            residual_names=("lse",),
            residuals=fake_lse,
            reduction=lambda q, k, *_: gradient_reduction(q, k),
            flops=lambda *canonical: 5 * counted(*canonical) // 2,
            dense=True,
        ),
        sharding=ways,
        hints=HINTS,
        **own,
    )
