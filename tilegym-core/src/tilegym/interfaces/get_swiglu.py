"""get_swiglu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym.interfaces._bound import named
from tilegym.ops import swiglu

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def get_swiglu(*, backend: str | None = None) -> Callable[[Tensor, Tensor], Tensor]:
    """The function (a, b) → silu(a) * b, with its gradient: `swiglu`.

    Args:
        backend: binds the function to a backend; None: each call chooses.

    Raises:
        BackendError: no installed distribution provides the backend.
    """
    name = named(backend)

    def silu_of_first_times_second(a: Tensor, b: Tensor) -> Tensor:
        return swiglu(a, b, backend=name)

    return silu_of_first_times_second
