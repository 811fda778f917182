"""How reports reach the terminal: tables for what is short, whole lines for what people copy."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PIPE_WIDTH: Final = 1000  # nothing wraps in a pipe: a row stays a line


def console() -> Console:
    """The standard output, as wide as the terminal; colours and width follow rich's rules (NO_COLOR, COLUMNS)."""
    terminal = sys.stdout is not None and sys.stdout.isatty()  # None: it was closed before we began
    return Console(highlight=False, width=None if terminal else _PIPE_WIDTH)


def show_json(report: Mapping[str, Any]) -> None:
    """The report as JSON and nothing else."""
    typer.echo(json.dumps(report, indent=2, default=_plain))


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, (set, frozenset)) else str(value)


def table(target: Console, title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table whose cells are shown as they are, without markup, and folded rather than cut."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    target.print(made)
    target.print()


_MARKS: Final = {True: ("yes", "green"), False: ("no", "red"), None: ("-", "dim")}


def _cell(value: object) -> Text:
    if value is None or isinstance(value, bool):
        return Text(*_MARKS[value])
    if isinstance(value, (list, tuple, set, frozenset)):
        return Text(", ".join(map(str, value)) or "-")
    return Text(str(value))


def show(target: Console, text: str) -> None:
    """Text as it is, which only the terminal wraps."""
    target.print(Text(text), soft_wrap=True)


def lines(target: Console, heading: str, entries: Mapping[str, str]) -> None:
    """`name: text`, each on a line of its own that only the terminal wraps, so that commands in it can be copied."""
    if not entries:
        return
    target.print(Text(heading, style="bold"))
    for name, text in entries.items():
        target.print(Text.assemble("  ", (name, "cyan"), f": {text}"), soft_wrap=True)
    target.print()
