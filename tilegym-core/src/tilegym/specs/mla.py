"""mla."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from tilegym.contract import Contract, Gradient, Sample, TensorSpec, Way, check_beside
from tilegym.op import dispatch
from tilegym.sharding import OUTPUT
from tilegym.specs import _attention, _decode
from tilegym.specs._attention import Mask

_OP = "mla"


@dispatch("mla")
def mla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qpe: Tensor,
    kpe: Tensor,
    is_causal: bool,
    scaling: float | None = None,
    **kwargs: Any,
) -> Tensor:
    """Multi-head latent attention, prefill: `fmha` with the scores (q @ k.T + qpe @ kpe.T) * scaling.

    Args:
        q: (B, H, S, D), float32, float16 or bfloat16, any strides; D a multiple of 8, at most 512.
        k: (B, Hk, Sk, D), of q's dtype, on its device, any strides; H a multiple of Hk.
        v: as k.
        qpe: (B, H, S, Dp), the part of queries that carries positions; Dp a multiple of 8, at most 64; otherwise as q.
        kpe: (B, 1, Sk, Dp), the same of keys, which all heads share.
        is_causal: query i sees the keys 0 to i; otherwise all of them.
        scaling: None: 1 / sqrt(D + Dp).
        **kwargs: the hints `has_backward`, `kernel_configs`; options of the backend.

    Returns:
        (B, H, S, D), as from `fmha`.

    Raises:
        ShapeError: the shapes do not go together, or D or Dp is no multiple of 8 or too large.
        DtypeError, DeviceError: an argument has another dtype or device.

    Gradient: q, k, v, qpe, kpe.

    Source: DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024.
    """
    raise NotImplementedError


def canonical(
    q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, bool, float]:
    _attention.check_qkv(_OP, q, k, v, most=_decode.MOST_LATENT)
    batch, heads, queries, size = q.shape
    check_beside(_OP, "qpe", qpe, q, "q", shape=(batch, heads, queries, None), dtypes=(q.dtype,))
    _attention.check_size(_OP, "qpe", qpe.shape[3], _decode.MOST_PE)
    check_beside(_OP, "kpe", kpe, q, "q", shape=(batch, 1, k.shape[2], qpe.shape[3]), dtypes=(q.dtype,))
    _attention.check_bool(_OP, "is_causal", is_causal)
    return q, k, v, qpe, kpe, is_causal, _attention.checked_scaling(_OP, scaling, size + qpe.shape[3])


def _mask(is_causal: bool) -> Mask:
    return Mask(right=0 if is_causal else None)


def reference(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> Tensor:
    return _attention.attend(q, k, v, scaling, _mask(is_causal), second=(qpe, kpe))[0]


def magnitude(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> Tensor:
    return _attention.magnitude(q, k, v, scaling, _mask(is_causal), second=(qpe, kpe))


def gradient_magnitude(grad_output: Tensor, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, ...]:
    qpe, kpe, is_causal, scaling = more
    mask = _mask(is_causal)
    return _attention.gradient_magnitude(grad_output, q, k, v, scaling, mask, second=(qpe, kpe))


def gradient_reduction(q: Tensor, k: Tensor, *_: Any) -> tuple[int, ...]:
    of_q, of_k, of_v = _attention.gradient_reduction(q, k)
    return of_q, of_k, of_v, of_q, q.shape[3] + q.shape[1] * q.shape[2]


def flops(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> int:
    return _attention.flops(q, k, _mask(is_causal), 2 * q.shape[3] + qpe.shape[3])


def backward_flops(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, is_causal: bool, scaling: float) -> int:
    return _attention.flops(q, k, _mask(is_causal), 5 * q.shape[3] + 3 * qpe.shape[3])


def bytes_moved(q: Tensor, k: Tensor, v: Tensor, qpe: Tensor, kpe: Tensor, *_: Any) -> int:
    return _attention.bytes_moved(q, k, v) + (qpe.numel() + kpe.numel()) * q.element_size()


def ways(q: Tensor, k: Tensor, *_: Any) -> Iterator[Way]:
    """By batches; by heads, if each process then has the keys of its queries."""
    yield dict.fromkeys(("q", "k", "v", "qpe", "kpe", OUTPUT), 0)
    if k.shape[1] == 1:
        yield dict.fromkeys(("q", "qpe", OUTPUT), 1)
    elif _attention.splits_evenly(k, k.shape[1]):
        yield dict.fromkeys(("q", "k", "v", "qpe", OUTPUT), 1)


def _case(name: str, q: tuple[int, int, int, int], keys: tuple[int, int], pe: int, **more: Any) -> Sample:
    """As `_attention.case`, with Dp."""
    batch, heads, length, _ = q
    shapes = {"qpe": (batch, heads, length, pe), "kpe": (batch, 1, keys[1], pe)}
    tensors = {key: TensorSpec(shape=shape, layout=more.get("layout", "contiguous")) for key, shape in shapes.items()}
    return _attention.case(name, q, keys, **{"is_causal": True, **tensors, **more})


def samples() -> Iterator[Sample]:
    yield _case("no-keys", (1, 2, 3, 8), (2, 0), 8)
    yield _case("one", (1, 1, 1, 8), (1, 1), 8, layout="strided")
    yield _case("odd", (2, 2, 5, 8), (2, 131), 8)
    yield _case("all-keys", (1, 4, 45, 40), (2, 60), 24, is_causal=False)
    yield _case("causal", (1, 2, 70, 32), (1, 70), 64, scaling=0.1)
    yield _case("size-512", (1, 1, 9, 512), (1, 10), 64)


def benchmarks() -> Iterator[Sample]:
    yield _case("B1-H2-S256-D64+32-causal", (1, 2, 256, 64), (2, 256), 32)
    yield _case("B1-H2-S512-D128+64-causal", (1, 2, 512, 128), (2, 512), 64)
    for is_causal, suffix in [(True, "-causal"), (False, "")]:
        yield _case(f"B4-H16-S4096-D128+64{suffix}", (4, 16, 4096, 128), (16, 4096), 64, is_causal=is_causal)


mla.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=magnitude,
    reduction=lambda q, k, v, qpe, *_: _attention.reduction(q, k) + qpe.shape[3],
    rounded_between=True,
    fake=_attention.fake,
    samples=samples,
    benchmarks=benchmarks,
    bytes_moved=bytes_moved,
    flops=flops,
    gradient=Gradient(
        inputs=("q", "k", "v", "qpe", "kpe"),
        magnitude=gradient_magnitude,
        saved=("q", "k", "v", "qpe", "kpe", "output", "lse"),
        like=("q", "k", "v", "qpe", "kpe"),
        residual_names=("lse",),
        residuals=_attention.fake_lse,
        reduction=gradient_reduction,
        flops=backward_flops,
        dense=True,
    ),
    sharding=ways,
    hints=_attention.HINTS,
)
