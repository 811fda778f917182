"""Makes the stub of `tilegym.ops` from the specs and interfaces, by reading their files: nothing is imported.

Run by the build of the wheel and by `tilegym new`. What it writes is not tracked, so that adding an op edits nothing.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HEADER = '"""Made from tilegym/specs/*.py and tilegym/interfaces/*.py; do not edit."""\n'
_FOOTER = '''
def __getattr__(name: str) -> Any:
    """Packs of ops, and ops of scripts."""
'''


def _op(path: Path, tree: ast.Module) -> ast.FunctionDef:
    """The function that a spec file decorates with `@dispatch("NAME")`, with `backend` added unless it is there."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(d, ast.Call) and isinstance(d.func, ast.Name) and d.func.id == "dispatch"
            for d in node.decorator_list
        ):
            arguments = node.args
            if "backend" not in (argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)):
                arguments.kwonlyargs.append(ast.arg("backend", ast.parse("str | None", mode="eval").body))
                arguments.kw_defaults.append(ast.Constant(None))
            return node
    raise ValueError(f"{path}: no function decorated with @dispatch")


def _interface(path: Path, tree: ast.Module) -> ast.FunctionDef:
    """The function that an interface's file is named after."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == path.stem:
            return node
    raise ValueError(f"{path}: no function {path.stem}")


def _public(node: ast.FunctionDef) -> ast.FunctionDef:
    """The declaration as a stub has it: the docstring for a body."""
    node.decorator_list = []
    node.body = [ast.Expr(ast.Constant(ast.get_docstring(node, clean=False) or ""))]
    node.returns = node.returns or ast.Name("Any")
    return node


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each imported name of a file, with the statement that imports it alone."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                alone = type(node)(**{**vars(node), "names": [alias]})
                yield alias.asname or alias.name.partition(".")[0], ast.unparse(alone)


def _imports_needed(path: Path, tree: ast.Module, node: ast.FunctionDef) -> set[str]:
    """The import statements behind the names in a signature."""
    statements = dict(_imports(tree))
    names = {found.id for found in ast.walk(node) if isinstance(found, ast.Name)} - {"Any"}
    unknown = names - statements.keys() - vars(builtins).keys()
    if unknown:
        raise ValueError(
            f"{path}: the signature of {node.name} uses {', '.join(sorted(unknown))}, which the file does not import; "
            "a stub can only repeat imported and builtin names"
        )
    return {statements[name] for name in names & statements.keys()}


def stub(package: Path) -> str:
    """The text of `ops/__init__.pyi` for the specs and interfaces in a `tilegym` package folder."""
    imports, functions = {"from typing import Any"}, []
    for folder, declaration in (("specs", _op), ("interfaces", _interface)):
        for path in sorted((package / folder).glob("[!_]*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            node = _public(declaration(path, tree))
            imports |= _imports_needed(path, tree, node)
            functions.append(f"\n{ast.unparse(node)}\n")
    names = sorted(path.stem for path in (package / "ops").glob("[!_]*.py"))
    groups = [f"from tilegym.ops import {name} as {name}" for name in names]
    return "\n".join([_HEADER, *sorted(imports), *groups, *functions, _FOOTER])


def write_stub(package: Path) -> Path:
    """Write the stub beside `ops/__init__.py`, and return its path."""
    target = package / "ops" / "__init__.pyi"
    target.write_text(stub(package), encoding="utf-8")
    return target
