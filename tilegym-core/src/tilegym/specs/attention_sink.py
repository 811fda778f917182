"""attention_sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, Way, check_beside, check_shape, check_tensor
from tilegym.op import dispatch
from tilegym.sharding import OUTPUT
from tilegym.specs import _attention
from tilegym.specs._attention import Form, Mask

_OP = "attention_sink"


@dispatch("attention_sink")
def attention_sink(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float | None = 0.125,
    sliding_window: int | None = None,
    start_q: int | Tensor = 0,
    **kwargs: Any,
) -> Tensor:
    """Causal attention with a sink: each head has one more logit in its softmax, for which there is no value.

        scores = query @ key.T * sm_scale  # of each head; -inf where a key is not seen
        weights = torch.softmax(torch.cat([scores, sinks], -1), -1)[..., :-1]

    Query i, at position p = i + start_q, sees the keys j <= p, and with a sliding window those with j > p - W alone.

    Args:
        query: (B, S, Hk, G, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256. Each of the
            Hk heads of keys serves G heads of queries.
        key: (B, Sk, Hk, D), of query's dtype, on its device, any strides.
        value: as key.
        sinks: (Hk * G,), float32, float16 or bfloat16, on query's device.
        sm_scale: the factor of the products; None: 1 / sqrt(D).
        sliding_window: W; None or not positive: no window.
        start_q: the position of the first query: an int, or a tensor of one integer on query's device, which is read
            there, without waiting for it.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, S, Hk * G * D), query's dtype, contiguous. Computed as in `fmha`; 0 where a query sees no key.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.

    Gradient: query, key, value, sinks.

    Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025; Xiao et al., "Efficient Streaming Language Models
    with Attention Sinks", 2023.
    """
    raise NotImplementedError


def canonical(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float | None = 0.125,
    sliding_window: int | None = None,
    start_q: int | Tensor = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, int, int, Tensor | None]:
    return checked(_OP, query, key, value, sinks, sm_scale, sliding_window, start_q)


def checked(
    op: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float | None,
    sliding_window: int | None,
    start_q: int | Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, int, int, Tensor | None]:
    """The arguments in canonical form, of `op`, which may be that of one query."""
    check_tensor(op, "query", query)
    check_shape(op, "query", query, (None,) * 5)
    batch, _, kv_heads, group, size = query.shape
    _attention.check_size(op, "query", size)
    check_beside(op, "key", key, query, "query", shape=(batch, None, kv_heads, size), dtypes=(query.dtype,))
    check_beside(op, "value", value, query, "query", shape=key.shape, dtypes=(query.dtype,))
    check_beside(op, "sinks", sinks, query, "query", shape=(kv_heads * group,))
    scaling = _attention.checked_scaling(op, sm_scale, size, name="sm_scale")
    window = _attention.checked_window(op, "sliding_window", sliding_window)
    return query, key, value, sinks, scaling, window, *_attention.checked_start(op, start_q, query, "query")


def _form(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
) -> Form:
    """The arguments as the functions of `_attention` take them."""
    start = start_q if start_at is None else start_at.reshape(())
    mask = Mask(left=sliding_window - 1 if sliding_window else None, right=0, start=start)
    q = query.flatten(2, 3).transpose(1, 2)
    return (q, key.transpose(1, 2), value.transpose(1, 2), sm_scale, mask), {"sinks": sinks}


def _joined(output: Tensor) -> Tensor:
    """(B, H, S, D) → (B, S, H * D)."""
    return output.transpose(1, 2).flatten(2, 3)


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
) -> Tensor:
    args, options = _form(query, key, value, sinks, sm_scale, sliding_window, start_q, start_at)
    return _joined(_attention.attend(*args, **options)[0])


def magnitude(*canonical: Any) -> Tensor:
    args, options = _form(*canonical)
    return _joined(_attention.magnitude(*args, **options))


def gradient_magnitude(grad_output: Tensor, *canonical: Any) -> tuple[Tensor, ...]:
    args, options = _form(*canonical)
    query = canonical[0]
    grad = grad_output.reshape(query.shape).flatten(2, 3).transpose(1, 2)
    q, k, v, sinks = _attention.gradient_magnitude(grad, *args, **options)
    return q.transpose(1, 2).reshape(query.shape), k.transpose(1, 2), v.transpose(1, 2), sinks


def reduction(query: Tensor, key: Tensor, *_: Any) -> int:
    return query.shape[4] + key.shape[1]


def gradient_reduction(query: Tensor, key: Tensor, *_: Any) -> tuple[int, ...]:
    batch, queries, group, size = query.shape[0], query.shape[1], query.shape[3], query.shape[4]
    return size + key.shape[1], size + queries * group, size + queries * group, batch * queries + size


def fake(query: Tensor, *_: Any) -> Tensor:
    batch, queries, kv_heads, group, size = query.shape
    return torch.empty((batch, queries, kv_heads * group * size), dtype=query.dtype, device=query.device)


def fake_lse(query: Tensor, *_: Any) -> tuple[Tensor]:
    """The log-sum-exp of each row of scores and the sink: (B, H, S), float32."""
    batch, queries, kv_heads, group = query.shape[:4]
    return (torch.empty((batch, kv_heads * group, queries), dtype=torch.float32, device=query.device),)


def bytes_moved(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    return (2 * query.numel() + key.numel() + value.numel()) * query.element_size()


def flops(*canonical: Any) -> int:
    (q, k, _, _, mask), _ = _form(*canonical)
    return _attention.flops(q, k, mask)


def ways(query: Tensor, key: Tensor, *_: Any) -> Iterator[Way]:
    """By batches; by heads of keys, if each process has the same number."""
    yield dict.fromkeys(("query", "key", "value", OUTPUT), 0)
    if _attention.splits_evenly(key, key.shape[2]):
        yield {**dict.fromkeys(("query", "key", "value", OUTPUT), 2), "sinks": 0}


def _case(name: str, query: tuple[int, ...], keys: int, **more: Any) -> Sample:
    """A case with query: (B, S, Hk, G, D)."""
    batch, _, kv_heads, group, size = query
    shapes = {"query": query, "key": (batch, keys, kv_heads, size), "value": (batch, keys, kv_heads, size)}
    layout = more.pop("layout", "contiguous")
    tensors = {name: TensorSpec(shape=shape, layout=layout) for name, shape in shapes.items()}
    sinks = TensorSpec(shape=(kv_heads * group,), fill=more.pop("fill", "normal"))
    return Sample(name=name, args={**tensors, "sinks": sinks, **more})


def samples() -> Iterator[Sample]:
    start_at = TensorSpec(shape=(1,), dtype=torch.int64, fill="indices")
    yield _case("no-keys", (1, 3, 2, 1, 8), 0)
    yield _case("odd", (2, 5, 2, 3, 8), 7, sm_scale=None)
    yield _case("window", (1, 70, 1, 2, 32), 60, sliding_window=20)
    yield _case("window-of-1", (1, 40, 2, 1, 64), 50, sliding_window=1, start_q=3, layout="sliced")
    yield _case("later", (1, 40, 1, 2, 48), 100, start_q=45, fill="large")
    yield _case("before-all-keys", (1, 60, 1, 1, 80), 50, start_q=-35)
    yield _case("start-on-device", (1, 33, 1, 4, 32), 33, start_q=start_at)


def benchmarks() -> Iterator[Sample]:
    yield _case("B1-H4/2-S256-D64", (1, 256, 2, 2, 64), 256)
    yield _case("B1-H4/2-S512-D64-W128", (1, 512, 2, 2, 64), 512, sliding_window=128)
    for window, suffix in [(None, ""), (128, "-W128")]:
        yield _case(f"B2-H64/8-S8192-D64{suffix}", (2, 8192, 8, 8, 64), 8192, sliding_window=window)


attention_sink.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=reduction,
    rounded_between=True,
    fake=fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=flops,
    gradient=Gradient(
        inputs=("query", "key", "value", "sinks"),
        magnitude=gradient_magnitude,
        saved=("query", "key", "value", "sinks", "start_at", "output", "lse"),
        like=("query", "key", "value", "sinks"),
        residual_names=("lse",),
        residuals=fake_lse,
        reduction=gradient_reduction,
        flops=lambda *canonical: 5 * flops(*canonical) // 2,
        dense=True,
    ),
    sharding=ways,
    hints=_attention.HINTS,
)
