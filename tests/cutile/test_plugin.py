"""The plugin module is light, and its probe gives a reason."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from tilegym_cutile import plugin, toolchain


def test_plugin_imports_neither_torch_nor_cuda_tile():
    program = "import sys, tilegym_cutile.plugin; print([m for m in ('torch', 'cuda.tile') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_plugin_declares_the_backend_and_where_its_ops_are():
    [backend] = plugin.tilegym_backends()
    [pack] = plugin.tilegym_impl_packs()
    assert plugin.TILEGYM_API == 1
    assert (backend.name, backend.device_types, backend.priority) == ("cutile", ("cuda",), 100)
    assert (pack.backend, pack.op_pack, pack.package) == ("cutile", "tilegym", "tilegym_cutile.ops")


@pytest.mark.parametrize("reason", [None, "no driver"])
def test_probe_answers_with_the_toolchains_reason(monkeypatch, reason):
    monkeypatch.setattr(toolchain, "why_unusable", lambda device: reason if device.index == 1 else "wrong device")
    assert plugin.probe(torch.device("cuda", 1)) == reason
