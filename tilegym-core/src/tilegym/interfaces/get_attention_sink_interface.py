"""get_attention_sink_interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.interfaces._attention import check_hugging_face
from tilegym.interfaces._bound import named
from tilegym.interfaces.attention_sink_interface import attention_sink_interface

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_NAME = "get_attention_sink_interface"


def get_attention_sink_interface(backend: str | None = None) -> Callable[..., tuple[Tensor, None]]:
    """A Hugging Face attention function for gpt-oss, on `attention_sink`, or `attention_sink_decode` of one query.

    It is `(module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, s_aux=None,
    **kwargs)`, to be registered as `transformers.AttentionInterface.register("tilegym",
    get_attention_sink_interface())`; what else Hugging Face passes is dropped. query: (B, H, S, D), key, value:
    (B, Hk, Sk, D), s_aux: the sinks, (H,); None: `module.sinks`. It returns the output, (B, S, H, D), and None for the
    weights. Queries are the last ones: of Sk keys, query i stands at Sk - S + i. A mask or dropout is refused.

    Args:
        backend: binds the function to a backend; None: each call chooses.

    Raises:
        BackendError: no installed distribution provides the backend.
    """
    name = named(backend)

    def attention(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        sliding_window: int | None = None,
        s_aux: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        check_hugging_face(_NAME, dropout, attention_mask=attention_mask)
        sinks = module.sinks if s_aux is None else s_aux
        output = attention_sink_interface(query, key, value, sinks, scaling, sliding_window, backend=name)
        return output.transpose(1, 2), None

    return attention
