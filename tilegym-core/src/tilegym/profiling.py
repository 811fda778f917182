"""Calls as PyTorch's profilers show them: each a range that names op and backend, `tilegym::softmax[cutile]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.autograd import profiler

if TYPE_CHECKING:
    from collections.abc import Callable


def range_name(op: str, backend: str) -> str:
    """What the range of a call is called."""
    return f"tilegym::{op}[{backend}]"


def profiled(name: str, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of `run(*args, **kwargs)`, in a range if somebody is profiling."""
    if not profiler._is_profiler_enabled:  # noqa: SLF001 - what compiled code of PyTorch's own asks, and costs nothing
        return run(*args, **kwargs)
    with profiler.record_function(name):
        return run(*args, **kwargs)
