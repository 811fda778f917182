"""Poison: values that show up in results when memory is used before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from cuda.tile._ir.typing_support import to_dtype
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tilegym_cutile_cpu.values import undetermined

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALLOCATORS = (
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.empty_permuted,
    Tensor.new_empty,
    Tensor.new_empty_strided,
)


def poison(tensor: Tensor) -> Tensor:
    """Fill a tensor in place with NaN, or with a number that is unlikely to be right. Returns it."""
    with torch.no_grad():
        return tensor.fill_(undetermined(to_dtype(tensor.dtype)))


class PoisonedAllocations(TorchFunctionMode):
    """While active, `torch.empty` and its relatives return poisoned CPU tensors.

    An element that a kernel ought to have written, and did not, is then seen in its output.
    """

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _ALLOCATORS and result.device.type == "cpu" and result.layout is torch.strided:
            poison(result)
        return result
