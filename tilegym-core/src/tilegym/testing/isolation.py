"""Keeps what a test changes in TileGym from the next test."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilegym import choice, config, registry

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def isolated() -> Iterator[None]:
    """Put back on leaving what the block changed: the preferred backend, and what it registered at run time.

    If the environment asks for other settings on leaving than are in force, it is read anew and plugins load again.
    """
    preferred, registered = choice.state(), registry.state()
    try:
        yield
    finally:
        registry.restore(registered)
        choice.restore(preferred)
        if config.read(os.environ) != config.settings():
            config.reload()
