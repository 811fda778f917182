"""mla_decoding_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.ops import mla_decoding

if TYPE_CHECKING:
    from torch import Tensor


def mla_decoding_interface(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float | None = None,
    transpose: bool = True,
    backend: str | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """The op `mla_decoding`, with `backend` as its last argument by position.

    Args:
        q: (B, H, D).
        qpe: (B, H, Dp).
        kv: (B, Sk, D).
        kpe: (B, Sk, Dp).
        sm_scale: None: 1 / sqrt(D + Dp).
        transpose: a hint of the op.
        backend: as of an op.
        **kwargs: further options of the op.

    Returns:
        The output, (B, H, D), and the base-2 log-sum-exp, (B, H).
    """
    return mla_decoding(q, qpe, kv, kpe, sm_scale, transpose, backend=backend, **kwargs)
