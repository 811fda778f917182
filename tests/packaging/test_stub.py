"""The generated stub of `tilegym.ops` gives type checkers every op's signature."""

from __future__ import annotations

import inspect
import re
import runpy
import shutil
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from mypy import api

import tilegym
from tests.packaging.conftest import MEMBERS

if TYPE_CHECKING:
    from pathlib import Path

PACKAGE = MEMBERS["tilegym-core"] / "src" / "tilegym"
make_stub = runpy.run_path(str(PACKAGE / "stubs.py"))["stub"]


# What signatures name of torch: mypy takes a minute to read the whole, which adds nothing here.
TORCH = """
class dtype: ...
class device: ...
class Tensor: ...
def ones(*size: int) -> Tensor: ...
"""
NN = """
class Module: ...
"""


def check(source: str, tmp_path: Path) -> list[str]:
    """What mypy says, strictly, of a user's file beside a copy of the package with its stub made anew."""
    package = tmp_path / "src" / "tilegym"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "ops" / "__init__.pyi").write_text(make_stub(package))
    (package.parent / "torch" / "nn").mkdir(parents=True)
    (package.parent / "torch" / "__init__.pyi").write_text(TORCH)
    (package.parent / "torch" / "nn" / "__init__.pyi").write_text(NN)
    user = tmp_path / "user.py"
    user.write_text(dedent(source))
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = true\nmypy_path = {package.parent}\n")
    options = ["--no-site-packages", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    out, err, _ = api.run(["--config-file", str(tmp_path / "mypy.ini"), *options, str(user)])
    assert err == ""
    return [re.sub(r"^.*user\.py:", "", line) for line in out.splitlines()[:-1]]


def test_types_of_good_and_bad_calls(tmp_path):
    source = """\
        import torch
        import tilegym
        from tilegym.ops import softmax
        x = torch.ones(2, 3)
        reveal_type(tilegym.ops.softmax(x))
        reveal_type(tilegym.ops.rms_norm(x, 3, None, 1e-6, offset=1.0, backend="torch"))
        reveal_type(tilegym.ops.silu_and_mul)
        reveal_type(tilegym.ops.some_pack.some_op(x))
        reveal_type(tilegym.ops.get_rms_norm_module("gemma3", backend="torch"))
        softmax("x")
        softmax()
        softmax(x, backend=1)
        tilegym.ops.rms_norm(x, 3, None, "tiny")
    """
    assert check(source, tmp_path) == [
        '5: note: Revealed type is "torch.Tensor"',
        '6: note: Revealed type is "torch.Tensor"',
        (
            '7: note: Revealed type is "def (input: torch.Tensor, out: torch.Tensor | None =, *, '
            'backend: str | None =, **kwargs: Any) -> torch.Tensor"'
        ),
        '8: note: Revealed type is "Any"',
        '9: note: Revealed type is "type[torch.nn.Module]"',
        '10: error: Argument 1 to "softmax" has incompatible type "str"; expected "Tensor"  [arg-type]',
        '11: error: Missing positional argument "x" in call to "softmax"  [call-arg]',
        '12: error: Argument "backend" to "softmax" has incompatible type "int"; expected "str | None"  [arg-type]',
        '13: error: Argument 4 to "rms_norm" has incompatible type "str"; expected "float"  [arg-type]',
    ]


@pytest.mark.parametrize(
    "op", sorted(path.stem for folder in ("specs", "interfaces") for path in (PACKAGE / folder).glob("[!_]*.py"))
)
def test_stub_says_what_the_function_says(op, tmp_path):
    stub = tmp_path / "stub.py"
    stub.write_text("from __future__ import annotations\n" + make_stub(PACKAGE).partition("def __getattr__")[0])
    declared = runpy.run_path(str(stub))[op]
    function = getattr(tilegym.ops, op)
    assert inspect.signature(declared) == inspect.signature(function)
    assert declared.__doc__ == function.__doc__


def test_a_spec_whose_signature_cannot_be_repeated_is_named(tmp_path):
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "odd.py").write_text("SIZE = 3\n@dispatch('odd')\ndef odd(x: int = SIZE) -> int:\n    ...\n")
    with pytest.raises(ValueError, match=r"odd\.py: the signature of odd uses SIZE, which the file does not import"):
        make_stub(tmp_path)


def test_an_interface_without_its_function_is_named(tmp_path):
    interfaces = tmp_path / "interfaces"
    interfaces.mkdir()
    (interfaces / "odd.py").write_text("def even(): ...\n")
    with pytest.raises(ValueError, match=r"odd\.py: no function odd"):
        make_stub(tmp_path)
