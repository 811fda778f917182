"""Fixtures of the suite of backend `cutile`."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile import runtime


@pytest.fixture
def executors(monkeypatch):
    """A registry of executors of this test's own."""
    monkeypatch.setattr(runtime, "_factories", dict(runtime._factories))
    monkeypatch.setattr(runtime, "_executors", {})


@pytest.fixture
def device(request, executors):
    """Where kernels run in this test: parametrised by `everywhere`."""
    if request.param == "cpu":
        reason = "the interpreter, tilegym-cutile-cpu, is not installed"
        backend = pytest.importorskip("tilegym_cutile_cpu.backend", reason=reason)
        backend.install()
    return torch.device(request.param)
