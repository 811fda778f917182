"""A kernel, arguments for it, and what they must hold after the launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import cuda.tile as ct


@dataclass(frozen=True)
class Case:
    """expected: argument position -> its exact value after the launch, up to `rtol` and `atol`."""

    kernel: ct.kernel
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    expected: Mapping[int, torch.Tensor]
    rtol: float = 0.0
    atol: float = 0.0


CASES: dict[str, Callable[[], Case]] = {}


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    """Register a function that makes a case, by its name."""
    assert function.__name__ not in CASES, f"two cases are named {function.__name__}"
    CASES[function.__name__] = function
    return function


def blank(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """An output that no kernel has written: a value that no case expects."""
    return torch.full(shape, 99, dtype=dtype)
