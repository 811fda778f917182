"""get_apply_rope_func."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilegym.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from tilegym.interfaces._bound import named
from tilegym.ops import apply_rope_base
from tilegym.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    Pair = tuple[Tensor, Tensor]

_FACTORS = {"llama": 1.0, "qwen2": 1.0, "gemma3": 1.0, "gpt-oss": 1.0, "qwen3_5": 0.25}
"""Models that rotate halves → the part of a head that they rotate."""
_INTERLEAVED = "deepseek"


def get_apply_rope_func(model: str = "llama", *, backend: str | None = None) -> Callable[..., tuple[Tensor, Tensor]]:
    """A model's function that rotates queries and keys, on `apply_rope_base`: in the place of Hugging Face's.

    It is `(q, k, cos, sin, position_ids=None, unsqueeze_dim=1)`, and gives (q, k) rotated, with gradients for both. For
    "gpt-oss" cos and sin may have the columns of one half, which serve for both. For "deepseek" it is
    `(q, k, freqs_cis)`, q: (B, H, S, D), k: (B, Hk, S, D), freqs_cis: (S, D / 2) or (B, S, D / 2), complex: dimensions
    2j and 2j + 1 are the real and imaginary part of a number, to be multiplied with freqs_cis[..., j].

    Args:
        model: "llama", "qwen2", "gemma3", "gpt-oss", "qwen3_5" (a quarter of each head is rotated) or "deepseek".
        backend: binds the function to a backend; None: each call chooses.

    Raises:
        ArgumentValueError: nothing is known of the model.
        BackendError: no installed distribution provides the backend.
    """
    known = [*_FACTORS, _INTERLEAVED]
    if model not in known:
        raise ArgumentValueError(f"get_apply_rope_func: model must be one of {listed(known)}, got {model!r}")
    name = named(backend)
    return _of_pairs(name) if model == _INTERLEAVED else _of_halves(_FACTORS[model], name)


def _of_halves(factor: float, backend: str | None) -> Callable[..., Pair]:
    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None = None, unsqueeze_dim: int = 1
    ) -> Pair:
        if 2 * cos.shape[-1] == int(q.shape[-1] * factor):
            cos, sin = torch.cat([cos, cos], -1), torch.cat([sin, sin], -1)
        return apply_rope_base(
            q, k, cos, sin, position_ids, unsqueeze_dim, partial_rotary_factor=factor, backend=backend
        )

    return apply_rotary_pos_emb


def _of_pairs(backend: str | None) -> Callable[..., Pair]:
    def apply_rotary_emb(q: Tensor, k: Tensor, freqs_cis: Tensor) -> Pair:
        """A pair is rotated as two halves of one element each: (B, H, S, D) is seen as (B, H, S * D / 2, 2)."""
        _check_pairs(q, k, freqs_cis)
        pairs_q, pairs_k = (x.reshape(*x.shape[:2], x.shape[2] * x.shape[3] // 2, 2) for x in (q, k))
        cos, sin = (part.flatten(-2)[..., None].expand(*part.shape[:-2], -1, 2) for part in _parts(freqs_cis))
        rotated_q, rotated_k = apply_rope_base(pairs_q, pairs_k, cos, sin, backend=backend)
        return rotated_q.reshape(q.shape), rotated_k.reshape(k.shape)

    return apply_rotary_emb


def _check_pairs(q: Tensor, k: Tensor, freqs_cis: Tensor) -> None:
    """Of what the op cannot check, since it sees other shapes."""
    where = "get_apply_rope_func('deepseek')"
    for name, x in (("q", q), ("k", k)):
        if x.dim() != 4 or x.shape[3] % 2:
            raise ShapeError(f"{where}: {name} must be of shape (B, H, S, D) with even D, got {tuple(x.shape)}")
    if not freqs_cis.is_complex():
        raise ArgumentTypeError(f"{where}: freqs_cis must be complex, got {freqs_cis.dtype}")
    wanted = (q.shape[2], q.shape[3] // 2)
    if freqs_cis.dim() not in (2, 3) or tuple(freqs_cis.shape[-2:]) != wanted:
        raise ShapeError(
            f"{where}: freqs_cis must be of shape {wanted}, or a batch of them, got {tuple(freqs_cis.shape)}"
        )


def _parts(numbers: Tensor) -> Pair:
    real, imaginary = torch.view_as_real(numbers).unbind(-1)
    return real, imaginary
