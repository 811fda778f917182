"""mla_decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tilegym.contract import Contract, Sample
from tilegym.op import dispatch
from tilegym.specs import _attention, _decode

_OP = "mla_decoding"


@dispatch("mla_decoding")
def mla_decoding(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float | None = None,
    transpose: bool = True,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Multi-head latent attention of one query: all heads share latent vectors, which are keys and values at once.

        scores = (q @ kv.mT + qpe @ kpe.mT) * sm_scale
        o, lse = torch.softmax(scores, -1) @ kv, torch.logsumexp(scores, -1) / math.log(2)

    Args:
        q: (B, H, D), float32, float16 or bfloat16, any strides; any H; D a multiple of 8, at most 512.
        qpe: (B, H, Dp), the part of the query that carries positions, of q's dtype, on its device; Dp a multiple of 8,
            at most 64.
        kv: (B, Sk, D), otherwise as qpe.
        kpe: (B, Sk, Dp), otherwise as qpe.
        sm_scale: None: 1 / sqrt(D + Dp).
        transpose: hint: which of the two sides of a product heads are.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        o: (B, H, D), q's dtype, contiguous, computed as in `fmha_decode`, 0 without keys; and lse: (B, H), float32,
        the log2 of the sum of exponentials, -inf without keys.

    Raises:
        ShapeError: the shapes do not go together, or D or Dp is no multiple of 8, 0 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.

    Source: DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024.
    """
    raise NotImplementedError


def canonical(
    q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    return q, qpe, kv, kpe, _decode.checked_latent(_OP, q, qpe, kv, kpe, sm_scale)


def reference(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    return _decode.latent(q, qpe, kv, kpe, sm_scale)


def fake(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _decode.fake(q), torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)


def samples() -> Iterator[Sample]:
    case = _decode.latent_case
    yield case("no-heads", (1, 0, 8), 3, 8)
    yield case("no-keys", (2, 3, 8), 0, 8)
    yield case("one", (1, 1, 8), 1, 8)
    yield case("odd", (2, 3, 40), 7, 24)
    yield case("several-splits", (1, 8, 32), 150, 64, sm_scale=-0.3)
    yield case("heads-24", (1, 24, 512), 70, 64)
    yield case("large-scores", (1, 2, 64), 140, 8, fill="large")


mla_decoding.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=_decode.latent_magnitude,
    reduction=_decode.latent_reduction,
    rounded_between=True,
    fake=fake,
    samples=samples,
    benchmarks=_decode.latent_benchmarks,
    bytes_moved=_decode.latent_bytes,
    flops=_decode.latent_flops,
    outputs=("output", "lse"),
    sharding=_decode.latent_ways,
    hints={"transpose": (False, True), **_attention.HINTS},
)
