"""Makes the stub of `tilegym.ops` from the spec files, by reading them: nothing is imported.

Run by the build of the wheel and by `tilegym new`; the file it writes is not tracked, so that adding an op edits nothing.
"""

from __future__ import annotations

import ast
from pathlib import Path

_HEADER = '''"""Made from tilegym/specs/*.py; do not edit."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

'''


def _declaration(path: Path) -> ast.FunctionDef:
    """The function that a spec file decorates with `@dispatch("NAME")`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "dispatch"
            for d in node.decorator_list
        ):
            return node
    raise ValueError(f"{path}: no function decorated with @dispatch")


def _signature(node: ast.FunctionDef) -> str:
    """The declared signature with `backend` added, as source."""
    arguments = node.args
    names = [argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)]
    if "backend" not in names:
        arguments.kwonlyargs.append(ast.arg("backend", ast.parse("str | None", mode="eval").body))
        arguments.kw_defaults.append(ast.Constant(None))
    result = ast.unparse(node.returns) if node.returns is not None else "Any"
    return f"def {node.name}({ast.unparse(arguments)}) -> {result}:"


def stub(package: Path) -> str:
    """The text of `ops/__init__.pyi` for the specs in a `tilegym` package folder."""
    parts = [_HEADER]
    for path in sorted((package / "specs").glob("[!_]*.py")):
        node = _declaration(path)
        documentation = ast.get_docstring(node, clean=False) or ""
        parts.append(f'\n{_signature(node)}\n    """{documentation}"""\n')
    parts.append("\ndef __getattr__(name: str) -> Any:\n    \"\"\"Packs of ops, and ops of scripts.\"\"\"\n")
    return "".join(parts)


def write_stub(package: Path) -> Path:
    """Write the stub beside `ops/__init__.py`, and return its path."""
    target = package / "ops" / "__init__.pyi"
    target.write_text(stub(package), encoding="utf-8")
    return target
