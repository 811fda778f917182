"""What `tilegym new` writes: names checked, templates rendered, and files made, all of them or none.

The folder `templates/KIND` mirrors the tree that is written: `NAME` in a path stands for the name, and every file is a
jinja2 template.
"""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TEMPLATES: Final = Path(__file__).with_name("templates")
_WIDEST: Final = 120
"""Columns of a source line, as `pyproject.toml` has it."""


def check_name(name: str, what: str) -> str:
    """A name that can be a module and a function: a Python identifier in lower case, which is no keyword."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise typer.BadParameter(f"a new {what} is named by a Python identifier that is no keyword, got {name!r}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise typer.BadParameter(
            f"a new {what} is named in lower-case letters, digits and _, as modules are, and begins with a letter; "
            f"got {name!r}"
        )
    return name


def check_free(name: str, what: str, taken: Iterable[str]) -> None:
    """Refuse a name that something else has."""
    if name in taken:
        raise typer.BadParameter(f"there is {what} named {name!r} already; choose another name")


def render(kind: str, root: Path, name: str, context: Mapping[str, Any]) -> dict[Path, str]:
    """Where each file of `templates/KIND` goes beneath `root` → its text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - Python and TOML, no HTML
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["suffixed"] = _suffixed
    environment.globals["folded"] = _folded
    folder = _TEMPLATES / kind
    files = {}
    for source in sorted(folder.rglob("*.j2")):
        target = root / str(source.relative_to(folder)).removesuffix(".j2").replace("NAME", name)
        files[target] = environment.get_template(source.relative_to(_TEMPLATES).as_posix()).render(context)
        longest = max((len(line) for line in files[target].splitlines()), default=0)
        if target.suffix == ".py" and longest > _WIDEST:
            raise typer.BadParameter(
                f"{target.name} would have a line of {longest} columns, more than {_WIDEST}: choose shorter names"
            )
    return files


def _suffixed(names: Iterable[str], suffix: str) -> list[str]:
    return [name + suffix for name in names]


def _folded(head: str, arguments: str, tail: str) -> str:
    """`head(arguments)tail` as ruff formats it: on one line, or the arguments on a line of their own."""
    line = f"{head}({arguments}){tail}"
    indent = " " * (len(head) - len(head.lstrip()))
    return line if len(line) <= _WIDEST else f"{head}(\n{indent}    {arguments}\n{indent}){tail}"


def write(files: Mapping[Path, str]) -> None:
    """Make every file, with the folders it needs; on any failure none is left, and what was there is untouched."""
    existing = [str(path) for path in files if path.exists() or path.is_symlink()]
    if existing:
        raise typer.BadParameter(f"nothing is overwritten, and there is already {', '.join(existing)}")
    made: list[Path] = []
    try:
        for path, text in files.items():
            for folder in [*reversed(path.parents)]:
                if not folder.exists():
                    folder.mkdir()
                    made.append(folder)
            with path.open("x", encoding="utf-8", newline="\n") as stream:
                made.append(path)
                stream.write(text)
    except BaseException:
        for path in reversed(made):
            path.rmdir() if path.is_dir() else path.unlink()
        raise
