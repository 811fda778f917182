"""mla_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.ops import mla

if TYPE_CHECKING:
    from torch import Tensor


def mla_interface(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    qpe: Tensor,
    kpe: Tensor,
    is_causal: bool,
    scaling: float | None = None,
    backend: str | None = None,
    **kwargs: Any,
) -> Tensor:
    """The op `mla`, with `backend` as its last argument by position.

    Args:
        q: (B, H, S, D).
        k: (B, Hk, Sk, D).
        v: as k.
        qpe: (B, H, S, Dp).
        kpe: (B, 1, Sk, Dp).
        is_causal: query i sees the keys 0 to i; otherwise all of them.
        scaling: None: 1 / sqrt(D + Dp).
        backend: as of an op.
        **kwargs: further options of the op.

    Returns:
        (B, H, S, D).
    """
    return mla(q, k, v, qpe, kpe, is_causal, scaling, backend=backend, **kwargs)
