"""mla_decoding_split_kv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Contract, Sample
from tilegym.op import dispatch
from tilegym.specs import _attention, _decode

_OP = "mla_decoding_split_kv"


@dispatch("mla_decoding_split_kv")
def mla_decoding_split_kv(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float | None = None,
    kv_len_per_split: int | None = None,
    **kwargs: Any,
) -> Tensor:
    """The output of `mla_decoding`, with a say in how the keys are shared out.

    Args:
        q: (B, H, D), float32, float16 or bfloat16, any strides; any H; D a multiple of 8, at most 512.
        qpe: (B, H, Dp), of q's dtype, on its device; Dp a multiple of 8, at most 64.
        kv: (B, Sk, D), otherwise as qpe.
        kpe: (B, Sk, Dp), otherwise as qpe.
        sm_scale: None: 1 / sqrt(D + Dp).
        kv_len_per_split: how many keys one block goes through, where a backend shares them out; None: it chooses.
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, D), q's dtype, contiguous. Computed as in `fmha_decode`; without keys it is 0.

    Raises:
        ShapeError: the shapes do not go together, or D or Dp is no multiple of 8, 0 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentTypeError, ArgumentValueError: kv_len_per_split is no int, or below 1.

    Source: DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024.
    """
    raise NotImplementedError


def canonical(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float | None = None,
    kv_len_per_split: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, float, int | None]:
    scale = _decode.checked_latent(_OP, q, qpe, kv, kpe, sm_scale)
    return q, qpe, kv, kpe, scale, _decode.checked_split(_OP, kv_len_per_split)


def reference(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float, kv_len_per_split: int | None) -> Tensor:
    return _decode.latent(q, qpe, kv, kpe, sm_scale)[0]


def magnitude(q: Tensor, qpe: Tensor, kv: Tensor, kpe: Tensor, sm_scale: float, kv_len_per_split: int | None) -> Tensor:
    return _decode.latent_magnitude(q, qpe, kv, kpe, sm_scale)[0]


def samples() -> Iterator[Sample]:
    case = _decode.latent_case
    yield case("no-keys", (2, 3, 8), 0, 8)
    yield case("more-splits-than-keys", (2, 3, 40), 7, 24, kv_len_per_split=1)
    yield case("several-splits", (1, 8, 32), 150, 64, kv_len_per_split=70)
    yield case("heads-33", (1, 33, 128), 70, 16, layout="sliced")


mla_decoding_split_kv.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=_decode.latent_reduction,
    rounded_between=True,
    fake=lambda q, *_: _decode.fake(q),
    samples=samples,
    benchmarks=_decode.latent_benchmarks,
    bytes_moved=_decode.latent_bytes,
    flops=_decode.latent_flops,
    sharding=_decode.latent_ways,
    hints=_attention.HINTS,
)
