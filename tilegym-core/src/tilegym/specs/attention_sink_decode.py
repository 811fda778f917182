"""attention_sink_decode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Sample, TensorSpec
from tilegym.op import dispatch
from tilegym.specs import _attention, _decode
from tilegym.specs import attention_sink as prefill

_OP = "attention_sink_decode"


@dispatch("attention_sink_decode")
def attention_sink_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float | None = 0.125,
    sliding_window: int | None = None,
    start_q: int | Tensor = 0,
    kv_len_per_split: int | None = None,
    **kwargs: Any,
) -> Tensor:
    """`attention_sink` of one query, at position start_q.

    Args:
        query: (B, 1, Hk, G, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 256.
        key: (B, Sk, Hk, D), of query's dtype, on its device, any strides.
        value: as key.
        sinks: (Hk * G,), float32, float16 or bfloat16, on query's device.
        sm_scale: the factor of the products; None: 1 / sqrt(D).
        sliding_window: W, of which the query sees the last; None or not positive: no window.
        start_q: the position of the query: an int, or a tensor of one integer on query's device, which is read there,
            without waiting for it.
        kv_len_per_split: how many keys one block goes through, where a backend shares them out; None: it chooses.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, 1, Hk * G * D), query's dtype, contiguous. Computed as in `fmha_decode`; 0 where the query sees no key.

    Raises:
        ShapeError: the shapes do not go together, or D is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError, ArgumentValueError: kv_len_per_split is no int, or below 1.

    Source: OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card", 2025.
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
    kv_len_per_split: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, int, int, Tensor | None, int | None]:
    given = prefill.checked(_OP, query, key, value, sinks, sm_scale, sliding_window, start_q)
    _decode.check_one_query(_OP, "query", query, 1)
    return *given, _decode.checked_split(_OP, kv_len_per_split)


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sinks: Tensor,
    sm_scale: float,
    sliding_window: int,
    start_q: int,
    start_at: Tensor | None,
    kv_len_per_split: int | None,
) -> Tensor:
    return prefill.reference(query, key, value, sinks, sm_scale, sliding_window, start_q, start_at)


def bytes_moved(query: Tensor, key: Tensor, *more: Any) -> int:
    """Of query, the keys and values that are seen, and the output; a start in a tensor counts as the last position."""
    _, _, _, sliding_window, start_q, start_at, _ = more
    batch, keys, kv_heads, size = key.shape
    seen = keys if start_at is not None else max(0, min(keys, start_q + 1))
    seen = min(seen, sliding_window) if sliding_window else seen
    return 2 * (query.numel() + batch * kv_heads * seen * size) * query.element_size()


def _case(name: str, query: tuple[int, int, int, int], keys: int, **more: Any) -> Sample:
    """A case with query: (B, 1, Hk, G, D), of which B, Hk, G and D are given."""
    batch, kv_heads, group, size = query
    layout, fill = more.pop("layout", "contiguous"), more.pop("fill", "normal")
    shapes = {"query": (batch, 1, kv_heads, group, size), "key": (batch, keys, kv_heads, size)}
    tensors = {key: TensorSpec(shape=shape, layout=layout) for key, shape in shapes.items()}
    tensors |= {"value": tensors["key"], "sinks": TensorSpec(shape=(kv_heads * group,), fill=fill)}
    return Sample(name=name, args={**tensors, **more})


def samples() -> Iterator[Sample]:
    start_at = TensorSpec(shape=(1,), dtype=torch.int64, fill="indices")
    yield _case("no-keys", (1, 2, 1, 8), 0)
    yield _case("odd", (2, 2, 3, 8), 7, sm_scale=None, start_q=6)
    yield _case("window", (1, 1, 2, 32), 300, sliding_window=170, start_q=290, kv_len_per_split=70)
    yield _case("window-of-1", (1, 2, 1, 64), 50, sliding_window=1, start_q=3, layout="sliced")
    yield _case("before-all-keys", (1, 1, 2, 80), 50, start_q=-1)
    yield _case("window-behind-all-keys", (1, 1, 2, 24), 50, sliding_window=5, start_q=60)
    yield _case("large-sinks", (1, 8, 1, 48), 140, start_q=139, fill="offset")
    yield _case("start-on-device", (1, 1, 4, 32), 33, start_q=start_at, layout="transposed")


def benchmarks() -> Iterator[Sample]:
    for batch, keys, window in [(1, 512, None), (1, 1024, None), (64, 8192, 128), (64, 8192, None)]:
        name = f"B{batch}-H64/8-S{keys}-D64{f'-W{window}' if window else ''}"
        yield _case(name, (batch, 8, 8, 64), keys, sliding_window=window, start_q=keys - 1)


attention_sink_decode.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=lambda *canonical: prefill.magnitude(*canonical[:-1]),
    reduction=prefill.reduction,
    rounded_between=True,
    fake=prefill.fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=lambda *canonical: prefill.flops(*canonical[:-1]),
    sharding=prefill.ways,
    hints=_attention.HINTS,
)
