"""Activations by a second name, as users of other tile libraries write it: `tilegym.ops.activation.gelu`."""

from tilegym.ops import geglu, gelu, relu

__all__ = ["geglu", "gelu", "relu"]
