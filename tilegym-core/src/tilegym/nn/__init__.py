"""Modules on TileGym's ops, to be put in the place of torch's of the same name: `tilegym.nn.RMSNorm(1024)`.

Where torch has such a module, ours is a subclass: the same constructor, parameters, state dict and repr, and another
forward. They return the dtype of their input, under autocast too. The backend is chosen by each call, as that of any
op: `with tilegym.use_backend(...)` around it decides.
"""

from tilegym.nn.activations import GEGLU, GELU, Dropout, ReLU, SiluAndMul, Softmax
from tilegym.nn.mlp import SwiGLU
from tilegym.nn.norms import LayerNorm, RMSNorm
from tilegym.nn.rotary import RotaryEmbedding

__all__ = [
    "GEGLU",
    "GELU",
    "Dropout",
    "LayerNorm",
    "RMSNorm",
    "ReLU",
    "RotaryEmbedding",
    "SiluAndMul",
    "Softmax",
    "SwiGLU",
]
