"""A progress bar for launches that take long, where somebody watches."""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 2.0  # seconds before the bar appears


def follow(blocks: Iterator[None], total: int, title: str) -> None:
    """Run `blocks` to the end. On a terminal, and with `rich` installed, show how far along they are after a while."""
    started = time.monotonic()
    done = 0
    for _ in blocks:
        done += 1
        if time.monotonic() - started > PATIENCE:
            break
    else:
        return
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        for _ in blocks:
            pass
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, completed=done)
        for _ in blocks:
            bar.advance(task)
