"""get_fmha_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.interfaces._attention import (
    check_hugging_face,
    check_positions,
    checked_window,
    is_causal_of,
    last_keys,
    options,
)
from tilegym.interfaces._bound import named
from tilegym.interfaces.fmha_interface import fmha_interface
from tilegym.ops import swa_attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_NAME = "get_fmha_interface"


def get_fmha_interface(backend: str | None = None, kernel_configs: Any = None) -> Callable[..., tuple[Tensor, None]]:
    """A Hugging Face attention function on `fmha`, or on `fmha_decode` of one query; with a window, `swa_attention`.

    It is `(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, is_causal=None,
    **kwargs)`, to be registered as `transformers.AttentionInterface.register("tilegym", get_fmha_interface())`; what
    else Hugging Face passes is dropped. query: (B, H, S, D), key, value: (B, Hk, Sk, D). It returns the output,
    (B, S, H, D), and None for the weights. The one query of a decode step sees all keys, or the last `sliding_window`.
    A mask, dropout or a soft cap is refused, and so are several queries beside more keys, unless they see all of them.

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
        check_hugging_face(_NAME, dropout, attention_mask=attention_mask, softcap=softcap)
        window, causal = checked_window(_NAME, sliding_window), is_causal_of(module, is_causal)
        check_positions(_NAME, query.shape[2], key.shape[2], limited=causal or window is not None)
        if window is not None and query.shape[2] != 1:
            output = swa_attention(query, key, value, window, scaling, causal, **chosen)
        else:
            keys, values = last_keys(key, value, window)
            output = fmha_interface(query, keys, values, causal, scaling, **chosen)
        return output.transpose(1, 2), None

    return attention
