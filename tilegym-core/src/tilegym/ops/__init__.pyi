"""Made from tilegym/specs/*.py; do not edit."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor


def rms_norm(input: Tensor, normalized_shape: Sequence[int] | int | None, weight: Tensor | None, eps: float, bias: Tensor | None=None, mode: str | None=None, *, backend: str | None=None, **kwargs: Any) -> Tensor:
    """Root-mean-square norm: `input * torch.rsqrt(mean(input**2) + eps) * (offset + weight) + bias`.

    Args:
        input: (..., *normalized_shape), float32, float16 or bfloat16, any strides.
        normalized_shape: the trailing dimensions that the mean is over; an int or None means the last one.
        weight: (*normalized_shape), float32, float16 or bfloat16, on input's device; None: 1.
        eps: added to the mean of squares; not negative.
        bias: (*normalized_shape), as weight; None: 0.
        mode: hint: None, "static_persistent", "multi_wave_reload" or "multi_wave_cached".
        **kwargs: `offset` (float, 0.0) is added to weight in float32, as Gemma has it; options of the backend.

    Returns:
        Tensor of input's shape and dtype, contiguous. Computed in float32 and rounded once.

    Raises:
        ShapeError: normalized_shape is not how input's shape ends; weight or bias has another shape.
        DtypeError, DeviceError: an argument has another dtype or device.
        ArgumentValueError: eps is negative or NaN, or mode unknown.

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
    """

def silu_and_mul(input: Tensor, out: Tensor | None=None, *, backend: str | None=None, **kwargs: Any) -> Tensor:
    """Gated activation: `h = input.shape[-1] // 2; torch.nn.functional.silu(input[..., :h]) * input[..., h:]`.

    Args:
        input: (..., 2h), float32, float16 or bfloat16, any strides.
        out: (..., h), input's dtype and device, any strides; written and returned if given.
        **kwargs: options of the backend.

    Returns:
        Tensor (..., h) of input's dtype, contiguous unless `out` is given. Computed in float32 and rounded once.

    Raises:
        ShapeError: input has no dimension or an odd last one; out has another shape.
        DtypeError: input has another dtype; out has another dtype than input.
        DeviceError: out is on another device.

    Source: Shazeer, "GLU Variants Improve Transformer", 2020 (SwiGLU without the projections).
    """

def softmax(x: Tensor, use_tma: bool=False, *, backend: str | None=None, **kwargs: Any) -> Tensor:
    """Softmax over the last dimension: `torch.softmax(x, dim=-1)`.

    Args:
        x: (..., N), float32, float16 or bfloat16, any strides; N from 1 to 262,144.
        use_tma: hint: load tiles through the tensor memory accelerator.
        **kwargs: hints `use_chunked`, `use_multi_wave`, and options of the backend.

    Returns:
        Tensor of x's shape and dtype, contiguous. Computed in float32 and rounded once. A row of all -inf, or one
        that holds NaN or +inf, is NaN, as in torch.

    Raises:
        ShapeError: x has no dimension, or its last is over 262,144.
        DtypeError: x has another dtype.

    Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
    """

def __getattr__(name: str) -> Any:
    """Packs of ops, and ops of scripts."""
