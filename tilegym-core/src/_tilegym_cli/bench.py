"""`tilegym bench`: time ops beside their peers, and compare two runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from _tilegym_cli.bench_tables import by_label, label, milliseconds, show_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from tilegym.benchmarking.plan import Plan
    from tilegym.benchmarking.results import Results
    from tilegym.benchmarking.suite import Options
    from tilegym.contract import Sample

_QUICK_SECONDS: Final = 75.0  # what else a quick run does leaves it under 2 minutes
_QUICK_PATIENCE: Final = 1.0
_QUICK_EACH: Final = 0.05


class _RunByDefault(TyperGroup):
    """`tilegym bench softmax` is `tilegym bench run softmax`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front, unless one is there or help is wanted."""
        if not args or (args[0] not in self.commands and args[0] != "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    help="Time ops on every backend, beside this device's own ceiling; `run` may be left out: tilegym bench softmax.",
)


@app.command("run")
def run(
    ops: Annotated[list[str] | None, typer.Argument(metavar="OP", help="Ops; none: all.", show_default=False)] = None,
    *,
    backends: Annotated[str | None, typer.Option(help="Names, comma separated; by default all that can run.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Names, comma separated: bf16, float32 ...; by default bf16, or all of a sweep.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="By default the GPU, if there is one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small cases alone, in under 2 minutes.")] = False,
    backward: Annotated[bool, typer.Option("--backward", help="Gradients too.")] = False,
    graph: Annotated[
        bool | None,
        typer.Option(help="Replay calls from a CUDA graph; by default where a sweep asks for it.", show_default=False),
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="Time the cases of this file: benchmarks/sweeps/*.py; of OPs alone, if named.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no case later than so many seconds after the first.")
    ] = None,
    each: Annotated[float, typer.Option(min=0, help="Seconds that each timing takes (--quick: 0.05).")] = 0.2,
    jobs: Annotated[
        int,
        typer.Option(min=0, help="Compile all kernels before the first call, in so many processes; 0: when called."),
    ] = 0,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds that one call may take (--quick: 1); slower ones get no timing.")
    ] = 5.0,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a plot for each op to this folder.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Write results and plots below this folder, by device and date.")
    ] = None,
) -> None:
    """Check each op on each backend against float64, then time it.

    The exit status is 1 if a backend that is no peer gave a wrong answer or failed.
    """
    from rich.console import Console

    from _tilegym_cli.explain import parse_device
    from tilegym.benchmarking import plots
    from tilegym.benchmarking import results as files
    from tilegym.benchmarking.plan import compile_ahead
    from tilegym.benchmarking.suite import FAILED, WRONG, Options

    where = parse_device(device or _default_device())
    options = Options(
        device=where,
        graph=graph,
        seconds=min(each, _QUICK_EACH) if quick else each,
        call_seconds=min(patience, _QUICK_PATIENCE) if quick else patience,
        total_seconds=_QUICK_SECONDS if quick and seconds is None else seconds,
    )
    named = None if backends is None else [name.strip() for name in backends.split(",")]
    planned = planned_cases(ops or [], dtype, where, named, sweep, quick=quick, backward=backward)
    if plot is not None or results is not None:
        plots.check_installed()  # before the work, not after; likewise below
    begun = _begin(planned, options)
    suffix = ("" if sweep is None else f"-{sweep.stem}") + ("-quick" if quick else "")
    kept = None if results is None else _file_below(results, begun, suffix)
    targets = [path for path in (json, kept) if path is not None]
    for path in targets:
        files.check_writable(path)
    if jobs:
        with Console(file=sys.stderr).status(f"Compiling kernels in {jobs} processes"):
            compile_ahead(planned, where, jobs)
    found = _measure(begun, planned, options, targets)
    show_run(found, planned)
    folders = [path for path in (plot, kept and kept.with_suffix("")) if path is not None]
    for path in (*targets, *(file for folder in folders for file in plots.plot(found, folder))):
        typer.echo(f"wrote {path}")
    if any(not row.peer and (row.error or "").startswith((WRONG, FAILED)) for row in found.rows):
        raise typer.Exit(1)


@app.command("compare")
def compare(
    before: Annotated[Path, typer.Argument(help="Results of `tilegym bench --json`.")],
    after: Annotated[Path, typer.Argument(help="Results to judge by them.")],
    *,
    threshold: Annotated[float, typer.Option(min=0, help="How much longer a call may take: 0.05 is 5 %.")] = 0.05,
) -> None:
    """Show how much longer each call takes in the second run.

    The exit status is 1 if one is past the threshold or gives no timing any more, and 2 if the runs cannot be compared.
    """
    from _tilegym_cli.tables import console, lines, show, table
    from tilegym.benchmarking import compare as comparing
    from tilegym.benchmarking.results import read
    from tilegym.errors import ResultsError

    try:
        found = comparing.compare(read(before), read(after))
    except ResultsError as error:
        typer.echo(f"tilegym: {error}", err=True)
        raise typer.Exit(2) from None
    target = console()
    changes = sorted(found.changes, key=lambda change: -(change.ratio or 0.0))
    cells = [
        (
            *label(one.before),
            milliseconds(one.before),
            milliseconds(one.after),
            _ratio(one.ratio),
            one.slower(threshold),
        )
        for one in changes
    ]
    headings = ("op", "case", "dtype", "way", "backend", "ms before", "after", "ratio", "slower")
    table(target, f"{before} → {after}", headings, cells)
    lines(target, f"Only in {before}", by_label(found.only_before))
    lines(target, f"Only in {after}", by_label(found.only_after))
    if found.geometric_mean is not None:
        show(target, f"Geometric mean of the ratios: {found.geometric_mean:.3f}")
    if any(change.slower(threshold) for change in changes):
        raise typer.Exit(1)


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def planned_cases(
    ops: list[str],
    dtypes: str | None,
    device: torch.device,
    backends: list[str] | None,
    sweep: Path | None,
    *,
    purpose: str = "time",
    samples: Mapping[str, list[Sample]] | None = None,
    quick: bool,
    backward: bool,
) -> Plan:
    """What the options ask for, if there is any of it; `samples`, by op, are cases instead of the contracts'."""
    from _tilegym_cli.explain import parse_dtype
    from tilegym.benchmarking.plan import plan
    from tilegym.benchmarking.sweep import load, plan_sweep

    wanted = None if dtypes is None else [parse_dtype(name.strip()) for name in dtypes.split(",")]
    how: dict[str, Any] = {"backends": backends, "quick": quick, "backward": backward}
    if sweep is None:
        planned = plan(ops, wanted or [parse_dtype("bf16")], device, samples=samples, **how)
    else:
        planned = plan_sweep(load(sweep), device, ops=ops, dtypes=wanted, **how)
    if not planned.entries:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in planned.left_out.items())
        raise typer.BadParameter(f"there is nothing to {purpose} on {device}{reasons}")
    return planned


def _begin(planned: Plan, options: Options) -> Results:
    """Results without a row: where and when the run is, and the ceilings."""
    from datetime import datetime, timezone

    from tilegym.benchmarking import machine
    from tilegym.benchmarking.ceilings import measure_ceilings
    from tilegym.benchmarking.results import SCHEMA, Results

    return Results(
        schema=SCHEMA,
        device=machine.describe_device(options.device),
        ceilings=measure_ceilings(options.device, dict.fromkeys(case.dtype for case, _, _ in planned.entries)),
        versions=machine.versions(planned.backends),
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        commit=machine.commit(),
        rows=(),
    )


def _file_below(folder: Path, begun: Results, suffix: str) -> Path:
    """`FOLDER/nvidia-h200/2026-11-30T140000.json`, with a suffix that tells what kind of run it was."""
    from tilegym.benchmarking.machine import folder_name

    name = begun.date.partition("+")[0].replace(":", "") + suffix
    return folder / folder_name(begun.device) / f"{name}.json"


def _measure(begun: Results, planned: Plan, options: Options, targets: list[Path]) -> Results:
    """Run the plan; the files are written after each row, so that a run that is cut short leaves what it measured."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tilegym.benchmarking.results import write
    from tilegym.benchmarking.suite import run

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("the first", total=planned.rows)
        for row in run(planned, begun.ceilings, options):
            begun = replace(begun, rows=(*begun.rows, row))
            for path in targets:
                write(begun, path)
            progress.update(task, advance=1, description=" ".join(label(row)))
    return begun


def _ratio(ratio: float | None) -> str | None:
    return None if ratio is None else f"{ratio:.3f}"
