"""What the attention interfaces have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tilegym.errors import ArgumentValueError

if TYPE_CHECKING:
    from torch import Tensor


def needs_gradient(*tensors: Tensor) -> bool:
    """Whether somebody wants a gradient, which decode ops have none of."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def options(backend: str | None, kernel_configs: Any) -> dict[str, Any]:
    """Keyword arguments of an op: a hint that is not given is left out, for calls without options are quicker."""
    return {"backend": backend} if kernel_configs is None else {"backend": backend, "kernel_configs": kernel_configs}


def check_hugging_face(interface: str, dropout: float, **unsupported: object) -> None:
    """Refuse what Hugging Face may pass and the ops do not have: left out, the result would be wrong.

    Raises:
        ArgumentValueError: dropout is not 0; one of the others, such as attention_mask, is not None.
    """
    if dropout:
        raise ArgumentValueError(f"{interface}: attention has no dropout here, got dropout={dropout}")
    for name, value in unsupported.items():
        if value is not None:
            raise ArgumentValueError(f"{interface}: {name} must be None, for the op has none; got {value!r:.80}")


def is_causal_of(module: object, is_causal: bool | None) -> bool:
    """Whether queries see no later keys, as the call or Hugging Face's module says; if neither does, it is so."""
    return bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal


def check_positions(interface: str, queries: int, keys: int, *, limited: bool) -> None:
    """Refuse several queries beside more keys, as in a cache, if what they see is limited, so that positions count.

    Hugging Face's queries are the last positions; the ops, which know no start, would take them for the first ones.

    Raises:
        ArgumentValueError: it is such a call.
    """
    if limited and 1 < queries != keys:
        raise ArgumentValueError(
            f"{interface}: several queries must be as many as the keys, got {queries} and {keys}: the op is not told "
            "where the first query stands; give queries that continue a cache one at a time"
        )


def last_keys(k: Tensor, v: Tensor, window: int | None) -> tuple[Tensor, Tensor]:
    """The last `window` of keys and values (B, Hk, Sk, D), as views: those that one query at the end sees."""
    return (k, v) if window is None else (k[:, :, -window:], v[:, :, -window:])


def checked_window(interface: str, sliding_window: int | None) -> int | None:
    """Hugging Face's window, which counts the query's own key.

    Raises:
        ArgumentValueError: it holds no key.
    """
    if sliding_window is not None and sliding_window < 1:
        raise ArgumentValueError(f"{interface}: sliding_window must be at least 1 or None, got {sliding_window}")
    return sliding_window
