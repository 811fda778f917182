"""`tilegym compile`: every kernel of an op, compiled for any architecture, with no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tilegym_cutile.compilation import Compiled

_HEADINGS = ("arch", "kernel", "sample", "dtype", "hints", "registers", "stack", "shared", "seconds", "remarks")


def compile_(
    ops: Annotated[
        list[str] | None, typer.Argument(metavar="[OP]...", help="Ops; all that cutile has, if none.")
    ] = None,
    arch: Annotated[list[str] | None, typer.Option(help="sm_80, sm_90, sm_100 or sm_120; all, if none.")] = None,
    every: Annotated[bool, typer.Option(help="Every configuration and signature, not one of each branch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON and nothing else.")] = False,
) -> None:
    """Compile the cuTile kernels of ops, and tell registers, spills (stack bytes), shared memory and seconds."""
    from _tilegym_cli import tables
    from tilegym import get_registry_info
    from tilegym_cutile.runtime import ARCHITECTURES

    known = sorted(op for op, backends in get_registry_info().items() if "cutile" in backends)
    wrong = [op for op in ops or () if op not in known] + [one for one in arch or () if one not in ARCHITECTURES]
    if wrong:
        choices = f"ops {', '.join(known)}; architectures {', '.join(ARCHITECTURES)}"
        raise typer.BadParameter(f"unknown: {', '.join(wrong)}. Known: {choices}")
    rows = _rows(ops or known, arch or list(ARCHITECTURES), every)
    if as_json:
        tables.show_json({"kernels": rows, "spills": sum(row["stack"] > 0 for row in rows)})
    else:
        cells = [tuple(row[heading] for heading in _HEADINGS) for row in rows]
        tables.table(tables.console(), "Kernels", _HEADINGS, cells)


def _rows(ops: list[str], architectures: list[str], every: bool) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import track

    from tilegym_cutile.compilation import cases, compile_case

    pairs = [(case, arch) for arch in architectures for op in ops for case in cases(op, arch=arch, every=every)]
    progress = track(pairs, "Compiling", console=Console(stderr=True), transient=True)
    return [_row(compile_case(case, arch)) for case, arch in progress]


def _row(compiled: Compiled) -> dict[str, Any]:
    case = compiled.case
    return {
        "arch": compiled.arch,
        "op": case.op,
        "kernel": case.kernel,
        "sample": case.sample,
        "dtype": str(case.dtype).removeprefix("torch."),
        "hints": " ".join(f"{name}={value}" for name, value in case.hints.items()),
        "registers": compiled.usage.registers,
        "stack": compiled.usage.stack,
        "shared": compiled.usage.shared_memory,
        "seconds": round(compiled.seconds, 2),
        "remarks": "; ".join(compiled.remarks),
    }
