"""get_swiglu_module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilegym.errors import ArgumentValueError
from tilegym.interfaces._bound import bound
from tilegym.nn import SwiGLU

if TYPE_CHECKING:
    from torch import nn


def get_swiglu_module(*, backend: str | None = None) -> type[nn.Module]:
    """The class of Llama's feed-forward modules, on `swiglu`: to be put in the place of Hugging Face's.

    Its instances are made from a configuration with `hidden_size`, `intermediate_size`, `hidden_act` ("silu" or
    "swish") and, if its projections have biases, `mlp_bias`. They have the projections `gate_proj`, `up_proj` and
    `down_proj`.

    Args:
        backend: binds the class to a backend; None: each call chooses.

    Raises:
        BackendError: no installed distribution provides the backend.
    """
    return bound(LlamaMLP, backend)


class LlamaMLP(SwiGLU):
    """A gated feed-forward block, made from a Hugging Face configuration."""

    def __init__(self, config: Any) -> None:
        """Make the projections.

        Raises:
            ArgumentValueError: the configuration asks for another activation.
        """
        if config.hidden_act not in ("silu", "swish"):
            raise ArgumentValueError(
                f"get_swiglu_module: hidden_act must be 'silu' or 'swish', got {config.hidden_act!r}"
            )
        super().__init__(config.hidden_size, config.intermediate_size, bias=getattr(config, "mlp_bias", False))
        self.config = config
