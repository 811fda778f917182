"""One thread of torch for each launch. Tiles are small: more threads lose more at their barriers than they win."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_lock = threading.Lock()
_users = 0
_before = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread alone; the last launch to end restores what was set."""
    global _before, _users  # noqa: PLW0603 - torch's setting is the process's own
    with _lock:
        if _users == 0:
            _before = torch.get_num_threads()
        _users += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            torch.set_num_threads(_before)
