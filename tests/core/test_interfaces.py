"""Interfaces: functions beside the ops in `tilegym.ops`, found by file name and imported when first named."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tilegym
from tilegym import interfaces, registry
from tilegym.errors import ArgumentValueError, RegistrationError, UnknownBackendError, UnknownOpError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that counts as part of `tilegym/interfaces/`."""
    monkeypatch.setattr(interfaces, "__path__", [*interfaces.__path__, str(tmp_path)])
    registry.forget_files()
    yield tmp_path
    monkeypatch.undo()
    registry.forget_files()


def test_a_file_is_an_interface(folder):
    (folder / "make_answer.py").write_text("def make_answer(): return 42")
    (folder / "_private.py").write_text("raise AssertionError")
    registry.forget_files()
    assert tilegym.ops.make_answer() == 42
    assert "make_answer" in dir(tilegym.ops)
    assert "make_answer" not in tilegym.get_registry_info()
    assert "_private" not in dir(tilegym.ops)


def test_a_misspelt_interface_is_told(folder):
    (folder / "make_answers.py").write_text("")
    registry.forget_files()
    with pytest.raises(UnknownOpError, match=r"'make_anwsers'. Did you mean 'make_answers'\?"):
        _ = tilegym.ops.make_anwsers


def test_a_file_without_its_function_is_told(folder):
    (folder / "make_nothing.py").write_text("")
    registry.forget_files()
    with pytest.raises(RegistrationError, match=r"make_nothing.py defines no 'make_nothing'"):
        _ = tilegym.ops.make_nothing


def test_listing_imports_none():
    code = (
        "import sys, tilegym\n"
        "assert 'get_rms_norm_module' in dir(tilegym.ops)\n"
        "assert 'tilegym.interfaces.get_rms_norm_module' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_star_imports_all():
    found = {}
    exec("from tilegym.ops import *", found)  # noqa: S102 - where a star may stand is a module's own level
    assert {*dir(tilegym.ops)} <= found.keys()
    assert found["rms_norm"] is tilegym.ops.rms_norm


def test_no_interface_has_the_name_of_an_op():
    assert not registry.files_of("tilegym.interfaces") & {*registry.op_names()}


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"model": "lama"}, ArgumentValueError, "model must be one of gemma3, llama, got 'lama'"),
        ({"backend": "nobody"}, UnknownBackendError, "no installed distribution provides a backend 'nobody'"),
    ],
)
def test_get_rms_norm_module_refuses(given, error, message):
    with pytest.raises(error, match=message):
        tilegym.ops.get_rms_norm_module(**given)


@pytest.mark.parametrize("name", sorted(n for n in registry.files_of("tilegym.interfaces") if n.startswith("get_")))
def test_what_makes_functions_takes_every_spelling_of_a_backend(name):
    make = getattr(tilegym.ops, name)
    assert callable(make())
    assert callable(make(backend="auto"))
    with pytest.raises(UnknownBackendError, match="no installed distribution provides a backend 'nobody'"):
        make(backend="nobody")
