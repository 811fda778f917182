"""The commands. Each gathers a report of plain data, and shows it as tables or, with --json, as it is.

A command imports its module when it runs, so that `tilegym --help` need not wait for torch.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from _tilegym_cli import bench, listings, new, tables
from tilegym.__about__ import __version__
from tilegym.errors import ResultsError, TileGymError
from tilegym.plugins import catalogue
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Report = Mapping[str, Any]

app = typer.Typer(
    name="tilegym",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="GPU kernels with plugins: what is installed, what runs here, and why not.",
)

app.add_typer(bench.app, name="bench")
app.add_typer(new.app, name="new")

Json = Annotated[bool, typer.Option("--json", help="Print plain JSON and nothing else.")]


def run() -> None:
    """Run the command line; an error that people can act on is a message, not a traceback."""
    try:
        _add_commands_of_plugins()
        app(prog_name="tilegym")
    except TileGymError as error:
        typer.echo(f"tilegym: {error}", err=True)
        sys.exit(1)


def _add_commands_of_plugins() -> None:
    """Add what plugins declare; one that cannot be imported is left out with a word."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            plugins = catalogue().plugins
        except TileGymError:  # a bad setting, or a plugin under TILEGYM_STRICT: the command itself will tell
            return
        for plugin in plugins:
            for command in plugin.commands if plugin.error is None else ():
                module, _, function = command.target.partition(":")
                try:
                    app.command(command.name)(getattr(importlib.import_module(module), function))
                except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin does, it fails alone
                    typer.echo(f"tilegym: no command {command.name!r}: {plugin.label}: {describe(error)}", err=True)


def _report(gather: Callable[[], Report], show: Callable[[Report], None], as_json: bool) -> Report:
    with contextlib.redirect_stdout(sys.stderr):  # whatever a plugin prints while it loads
        report = gather()
    (tables.show_json if as_json else show)(report)
    return report


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tilegym {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(as_json: Json = False) -> None:
    """Run a decoder block's ops on real text, on every backend that can run here, and check every result."""
    from _tilegym_cli.demo import demo_report, show_demo

    if not _report(demo_report, show_demo, as_json)["ok"]:
        raise typer.Exit(1)


@app.command()
def backends(as_json: Json = False) -> None:
    """List the installed backends, and why one cannot run here."""
    _report(listings.backends_report, listings.show_backends, as_json)


@app.command()
def ops(as_json: Json = False) -> None:
    """List the ops, and which backend implements which."""
    _report(listings.ops_report, listings.show_ops, as_json)


@app.command()
def explain(
    op: Annotated[str, typer.Argument(help="An op's name, such as softmax.")],
    *,
    shape: Annotated[str | None, typer.Option(help="The first tensor's: 128x1000; none: the op as such.")] = None,
    dtype: Annotated[str, typer.Option(help="The tensors': bf16, float32 ...")] = "float32",
    device: Annotated[str, typer.Option(help="The tensors': cpu, cuda ...")] = "cpu",
    backend: Annotated[str | None, typer.Option(help="As backend= of the call.")] = None,
    as_json: Json = False,
) -> None:
    """Tell which backend a call would run on, and why no other; nothing is launched."""
    from _tilegym_cli.explain import explain_report, parse_device, parse_dtype, parse_shape, show_explanation

    sizes = None if shape is None else parse_shape(shape)
    gather = partial(explain_report, op, sizes, parse_dtype(dtype), parse_device(device), backend)
    if _report(gather, show_explanation, as_json)["chosen"] is None:
        raise typer.Exit(1)


@app.command()
def doctor(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks.")] = False, as_json: Json = False
) -> None:
    """Tell what is installed and in force, what cannot run here and why, and what is broken."""
    from _tilegym_cli.doctor import doctor_report, show_doctor

    if not _report(doctor_report, partial(show_doctor, verbose=verbose), as_json)["ok"]:
        raise typer.Exit(1)


@app.command()
def report(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="What `tilegym bench --json` wrote; several of a device show its history."),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
) -> None:
    """Write a page of HTML with what conforms and, from benchmark files, how fast it is."""
    from _tilegym_cli.report.command import write_report

    try:
        with contextlib.redirect_stdout(sys.stderr):  # whatever a plugin prints while it loads
            said = write_report(files or [], out)
    except ResultsError as error:
        typer.echo(f"tilegym report: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"wrote {out}: {said}")
