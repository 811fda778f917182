"""A bar appears on a terminal when a launch takes long, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from tilegym_cutile_cpu import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("patience", "stderr", "shown"), [(-1.0, Terminal(), True), (-1.0, io.StringIO(), False), (60.0, Terminal(), False)]
)
def test_following(monkeypatch: pytest.MonkeyPatch, patience: float, stderr: io.StringIO, shown: bool) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(progress, "PATIENCE", patience)
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    ran = []
    progress.follow((ran.append(i) for i in range(5)), 5, "my_kernel")
    assert ran == list(range(5))
    assert ("my_kernel" in stderr.getvalue()) is shown
