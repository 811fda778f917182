"""Launches while a CUDA graph is captured.

The first launch of a kernel compiles and loads it. PyTorch captures in a mode in which CUDA forbids every thread what
might wait for the device, and loading might: the capture would be lost. A thread may lift that ban for itself, as
PyTorch's own allocator does when it needs memory meanwhile; the kernel is captured all the same.
"""

from __future__ import annotations

import ctypes
import functools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


@functools.cache
def _driver() -> Any:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


@contextmanager
def loading_allowed() -> Iterator[None]:
    """This thread may load kernels inside the block, though a graph is being captured."""
    mode = ctypes.c_int(_RELAXED)
    _exchange(mode)
    try:
        yield
    finally:
        _exchange(mode)  # which the first call has set to what was before


def _exchange(mode: ctypes.c_int) -> None:
    code = _driver().cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    if code:
        raise RuntimeError(f"cuThreadExchangeStreamCaptureMode failed with CUDA error {code}")
