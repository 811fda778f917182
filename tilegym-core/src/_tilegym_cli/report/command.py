"""What `tilegym report` does: read the files, make the page, put it where it was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from _tilegym_cli.report.conformance import matrix
from _tilegym_cli.report.page import make_page, render
from tilegym.benchmarking import results
from tilegym.errors import ResultsError
from tilegym.files import write_whole
from tilegym.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable


def write_report(files: Iterable[Path], out: Path) -> str:
    """Write the page about these benchmark files, and about what is installed.

    Returns:
        What is on it, in a line.

    Raises:
        ResultsError: a file is not what `tilegym bench --json` writes, or the page cannot be written. Whatever stood at
            `out` is still there.
    """
    runs = [_read(file) for file in dict.fromkeys(Path(file).resolve() for file in files)]
    page = make_page(runs, matrix())
    try:
        write_whole(out, render(page))
    except OSError as error:
        raise ResultsError(f"the report cannot be written to {out}: {error.strerror or error}") from error
    installed = f"{counted(len(page.matrix.ops), 'op')}, {counted(len(page.matrix.backends), 'backend')}"
    if not runs:
        return f"{installed}; no benchmark file was given"
    return f"{installed}; {counted(len(page.measurements), 'measurement')} from {counted(len(runs), 'file')}"


def _read(file: Path) -> results.Results:
    try:
        return results.read(file)
    except ResultsError as error:
        raise ResultsError(f"{error}; expected a file that `tilegym bench --json FILE` wrote") from error
