"""get_fmha_gemma3_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.errors import ArgumentValueError
from tilegym.interfaces._attention import (
    check_hugging_face,
    check_positions,
    checked_window,
    is_causal_of,
    last_keys,
    needs_gradient,
    options,
)
from tilegym.interfaces._bound import named
from tilegym.ops import gemma_attention, gemma_attention_decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_NAME = "get_fmha_gemma3_interface"


def get_fmha_gemma3_interface(
    backend: str | None = None, kernel_configs: Any = None
) -> Callable[..., tuple[Tensor, None]]:
    """A Hugging Face attention function for Gemma, on `gemma_attention`, or `gemma_attention_decode` of one query.

    It is `(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None,
    is_causal=None, **kwargs)`, to be registered as `transformers.AttentionInterface.register("tilegym",
    get_fmha_gemma3_interface())`; what else Hugging Face passes is dropped. query: (B, H, S, D), key, value:
    (B, Hk, Sk, D). It returns the output, (B, S, H, D), and None for the weights. A sliding window of W keys, which is
    `window_size` W - 1 of the ops, counts the query's own; the one query of a decode step stands at the last key. A
    soft cap that is not given is `module.attn_logit_softcapping`. A mask or dropout is refused, and so are several
    queries beside more keys, unless they see all of them.

    Args:
        backend: binds the function to a backend; None: each call chooses.
        kernel_configs: a hint of the ops.

    Raises:
        BackendError: no installed distribution provides the backend.
    """
    name = named(backend)
    chosen = options(name, kernel_configs)

    def attention(
        module: object,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        is_causal: bool | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        check_hugging_face(_NAME, dropout, attention_mask=attention_mask)
        window, causal = checked_window(_NAME, sliding_window), is_causal_of(module, is_causal)
        check_positions(_NAME, query.shape[2], key.shape[2], limited=causal or window is not None)
        cap = getattr(module, "attn_logit_softcapping", None) if softcap is None else softcap
        if query.shape[2] != 1:
            if window == 1:
                raise ArgumentValueError(f"{_NAME}: sliding_window must be at least 2 for several queries, got 1")
            args = scaling, 0 if window is None else window - 1, cap, causal
            output = gemma_attention(query, key, value, *args, **chosen)
        else:
            keys, values = last_keys(key, value, window)
            if needs_gradient(query, key, value):
                output = gemma_attention(query, keys, values, scaling, 0, cap, is_causal=False, **chosen)
            else:
                output = gemma_attention_decode(query, keys, values, scaling, 0, cap, **chosen)
        return output.transpose(1, 2), None

    return attention
