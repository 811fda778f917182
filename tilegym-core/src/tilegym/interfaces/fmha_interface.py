"""fmha_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilegym.interfaces._attention import needs_gradient, options
from tilegym.ops import fmha, fmha_decode

if TYPE_CHECKING:
    from torch import Tensor


def fmha_interface(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    is_causal: bool = True,
    scaling: float | None = None,
    backend: str | None = None,
    has_backward: bool = False,  # noqa: ARG001 - a hint that changes nothing: the op sees who wants a gradient
    kernel_configs: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Attention: `fmha`, or `fmha_decode` of one query, which stands at the end and sees all keys.

    Args:
        q: (B, H, S, D).
        k: (B, Hk, Sk, D); H a multiple of Hk.
        v: as k.
        is_causal: query i sees the keys 0 to i, unless it is the only one; otherwise all of them.
        scaling: the factor of q @ k.T; None: 1 / sqrt(D).
        backend: as of an op.
        has_backward: a hint that changes nothing.
        kernel_configs: a hint of the op.
        **kwargs: further options of the op.

    Returns:
        (B, H, S, D).
    """
    chosen = options(backend, kernel_configs) | kwargs
    if q.shape[2:3] != (1,):
        return fmha(q, k, v, scaling, is_causal, **chosen)
    if needs_gradient(q, k, v) or q.dtype == torch.float8_e5m2:  # of which `fmha_decode` has neither
        return fmha(q, k, v, scaling, is_causal=False, **chosen)
    return fmha_decode(q, k, v, scaling, **chosen)
