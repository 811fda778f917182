"""`tilegym new`: a working op, backend or op pack to begin from."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from _tilegym_cli.scaffold import check_free, check_name, render, write
from _tilegym_cli.signature import DEFAULTS, names_in_use, parse_signature
from tilegym.__about__ import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

app = typer.Typer(no_args_is_help=True, help="Begin an op, a backend or a pack of ops with files that work.")

_SPECS: Final = Path("tilegym-core", "src", "tilegym", "specs")


@app.command()
def op(
    name: Annotated[str, typer.Argument(help="The op's name: `tilegym.ops.NAME`.")],
    *,
    kind: Annotated[str | None, typer.Option(help=f"What to begin from: {', '.join(DEFAULTS)}.")] = None,
    signature: Annotated[str | None, typer.Option(help='Its parameters: "x: Tensor, alpha: float = 0.1".')] = None,
    path: Annotated[Path | None, typer.Option(help="A checkout of TileGym; by default the one you are in.")] = None,
) -> None:
    """Write the contract of an op, its implementations, a test and a benchmark into a checkout; all pass at once."""
    _check_free_in_ops(name, "op")
    root = _checkout(path)
    if kind is None:
        kind = _ask(f"Kind ({', '.join(DEFAULTS)})", "elementwise")
    if kind not in DEFAULTS:
        raise typer.BadParameter(f"expected a kind out of {', '.join(DEFAULTS)}, got {kind!r}")
    check_free(name, "something in the files to be written", names_in_use(kind))
    if signature is None:
        signature = _ask("Parameters", DEFAULTS[kind])
    parameters = parse_signature(signature, kind)
    check_free(name, "a parameter", [*parameters.tensors, *parameters.floats])
    context = parameters.context() | {"name": name, "label": name}
    written = render(f"op/{kind}", root, name, context)
    write(written)
    _refresh_stub(root)
    _tell(written, f"hatch run test -k {name}   # then edit them; CONTRIBUTING.md says what is what")


@app.command()
def backend(
    name: Annotated[str, typer.Argument(help='The backend\'s name: `backend="NAME"`.')],
    *,
    path: Annotated[Path, typer.Option(help="Where its folder, tilegym-NAME, is made.")] = Path(),
) -> None:
    """Write a distribution with a backend of your own, which implements one op and passes the conformance suite."""
    from tilegym import registry

    check_name(name, "backend")
    known = registry.backends()
    aliases = (alias for backend in known.values() for alias in backend.aliases)
    check_free(name.replace("_", "-"), "a backend", {*known, *aliases})
    _write_distribution("backend", name, path, {})


@app.command()
def pack(
    name: Annotated[str, typer.Argument(help="The pack's name: its ops are `tilegym.ops.NAME.OP`.")],
    *,
    path: Annotated[Path, typer.Option(help="Where its folder, tilegym-NAME, is made.")] = Path(),
) -> None:
    """Write a distribution with an op of your own, whose implementation passes the conformance suite."""
    _check_free_in_ops(name, "pack")
    op_name = "leaky_silu"
    example = parse_signature(DEFAULTS["elementwise"], "elementwise").context()
    _write_distribution("pack", name, path, example | {"name": op_name, "label": f"{name}.{op_name}"})


def _check_free_in_ops(name: str, what: str) -> None:
    from tilegym import namespace, ops

    check_name(name, what)
    check_free(name, "an op, a pack or something else in tilegym.ops", {*namespace.names(), *vars(ops)})


def _write_distribution(kind: str, name: str, path: Path, more: Mapping[str, Any]) -> None:
    distribution, package = f"tilegym-{name.replace('_', '-')}", f"tilegym_{name}"
    if importlib.util.find_spec(package) is not None:
        raise typer.BadParameter(f"a package {package} is installed already; choose another name than {name!r}")
    names = {"backend": name.replace("_", "-"), "pack": name, "distribution": distribution, "package": package}
    root = path.resolve() / distribution
    if root.exists():
        raise typer.BadParameter(f"nothing is overwritten, and there is already {root}")
    written = render(kind, root, name, {**names, "core": _this_core(), **more})
    write(written)
    _tell(written, f'cd {root} && python3 -m pip install -e ".[testing]" && python3 -m pytest tests')


def _this_core() -> str:
    """The versions of tilegym-core that promise to load a plugin written for this one."""
    major, minor = map(int, __version__.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}"


def _ask(question: str, default: str) -> str:
    """The answer of whoever sits at the terminal; the default where nobody does."""
    if not _at_a_terminal():
        return default
    answer: Any = typer.prompt(question, default=default)
    return str(answer)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _checkout(path: Path | None) -> Path:
    """The checkout at `path`, or around the working directory."""
    places = [path.resolve()] if path is not None else [Path.cwd(), *Path.cwd().parents]
    found = next((place for place in places if (place / _SPECS).is_dir()), None)
    if found is None:
        where = f"{places[0]} is none" if path is not None else f"{places[0]} is in none"
        raise typer.BadParameter(
            f"an op of core is written into a checkout of TileGym, and {where}: it has no {_SPECS}. "
            "Give --path CHECKOUT; for an op in a distribution of your own, `tilegym new pack`"
        )
    return found


def _refresh_stub(root: Path) -> None:
    """Tell editors and type checkers of the new op. The stub is untracked, and each build makes it anew."""
    from tilegym.stubs import write_stub

    try:
        write_stub(root / _SPECS.parent)
    except (OSError, ValueError) as error:  # such as another contract that cannot be read
        typer.echo(f"the stub of tilegym.ops stays as it was: {error}", err=True)


def _tell(written: Iterable[Path], command: str) -> None:
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo(f"next: {command}")
