"""The logger `tilegym`, and the handler that `TILEGYM_LOG` gives it; without, logging is the application's affair."""

from __future__ import annotations

import logging
from typing import Final

logger: Final = logging.getLogger("tilegym")

_handler: logging.Handler | None = None


def configure(level: str | None) -> None:
    """Write to standard error what the logger is told, from a level on; None: as if we had never done so."""
    global _handler  # noqa: PLW0603 - the one handler of ours
    if _handler is not None:
        logger.removeHandler(_handler)
        logger.setLevel(logging.NOTSET)
        _handler = None
    if level is not None:
        _handler = logging.StreamHandler()
        _handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(_handler)
        logger.setLevel(level.upper())
