"""`tilegym tune`: finds faster configurations of kernels on this device, and keeps them."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from tilegym.benchmarking.plan import Plan
    from tilegym.contract import Sample
    from tilegym_cutile.search import Failed, Found, Limits
    from tilegym_cutile.tuning import Question

_HEADINGS = ("call", "function", "tried", "heuristic ms", "best ms", "better")


def tune(
    ops: Annotated[list[str] | None, typer.Argument(metavar="[OP]...", help="Ops; all, if none.")] = None,
    *,
    shapes: Annotated[
        str | None, typer.Option(help="The first tensor's: 16384x4096,8192x8192; by default the contract's cases.")
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(help="The cases of this file: benchmarks/sweeps/*.py; of OPs alone, if named.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Names, comma separated: bf16, float32 ...; by default bf16, or all of a sweep.")
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Gradients too.")] = False,
    device: Annotated[
        str | None,
        typer.Option(help="By default the GPU. On cpu, kernels are interpreted: times mean nothing, and none is kept."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Put what is better into this table too, made if need be: a file of one device.")
    ] = None,
    graph: Annotated[
        bool,
        typer.Option(help="On a GPU, replay calls from a CUDA graph: what the CPU spends on them does not count."),
    ] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Small cases alone, briefly timed.")] = False,
    each: Annotated[float, typer.Option(min=0, help="Seconds that each timing takes (--quick: 0.01).")] = 0.05,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after the first search that ends later than so many seconds.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Configurations tried of each search space.")] = None,
    compile_seconds: Annotated[float, typer.Option(min=1, help="How long a kernel may take to compile.")] = 20.0,
    jobs: Annotated[
        int | None, typer.Option(min=0, help="Processes that compile ahead; by default half of the CPUs, on cpu none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON and nothing else.")] = False,
) -> None:
    """Try other configurations of ops' kernels on this device, and keep those that are faster for this user.

    One is kept if its results are right and it beats the heuristic's own by over 1 %, twice. What was found before
    Ctrl-C is kept. Several processes may tune at once, each with its own --out; on one GPU they disturb each other.
    The exit status is 1 if an op failed as it is.
    """
    from tilegym.benchmarking.suite import Options
    from tilegym.errors import RecordError
    from tilegym_cutile.search import Limits, search

    where = _device(device)
    planned = _plan(ops or [], shapes, sweep, dtype, where, quick=quick, backward=backward)
    if jobs and not _times_mean_something(where):
        raise typer.BadParameter(f"on {where} kernels are interpreted, and none is compiled: leave out --jobs")
    if out is not None:
        _check(out, where)
    options = Options(device=where, graph=graph and where.type == "cuda", seconds=min(each, 0.01) if quick else each)
    limits = Limits(configs=limit, compile_seconds=compile_seconds)
    results: list[Found | Failed] = []
    rest: str | None = None
    interrupted, lost = False, None
    stop = math.inf if seconds is None else time.monotonic() + seconds
    try:
        with _ahead(jobs, planned, where, limits) as ahead:
            for result in _with_progress(partial(search, planned, options, limits, **ahead)):
                results.append(result)
                _keep(result, where, out)
                if time.monotonic() > stop:
                    rest = f"the {seconds:g} s of this run were over"
                    break
    except RecordError as error:  # the table cannot be written any more
        rest, lost = str(error), error
    except KeyboardInterrupt:
        rest, interrupted = "this run was interrupted", True
    report = _report(results, planned, where, rest)
    _show(report, as_json=as_json)
    if lost is not None:
        raise lost
    if interrupted:
        raise typer.Exit(130)
    if report["failed"]:
        raise typer.Exit(1)


def _device(name: str | None) -> torch.device:
    import torch

    from _tilegym_cli.explain import parse_device

    return parse_device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _plan(
    ops: list[str],
    shapes: str | None,
    sweep: Path | None,
    dtypes: str | None,
    device: torch.device,
    *,
    quick: bool,
    backward: bool,
) -> Plan:
    """What the options ask for, if there is any of it."""
    from _tilegym_cli.bench import planned_cases

    if sweep is not None and shapes is not None:
        raise typer.BadParameter("--sweep has cases of its own: leave out --shapes")
    backends = ["cutile-cpu" if device.type == "cpu" else "cutile"]
    samples = _samples(ops, shapes, dtypes)
    how = {"quick": quick, "backward": backward}
    return planned_cases(ops, dtypes, device, backends, sweep, purpose="tune", samples=samples, **how)


def _samples(ops: list[str], shapes: str | None, dtypes: str | None) -> dict[str, list[Sample]] | None:
    """By op, cases of the shapes that are given."""
    from _tilegym_cli.explain import parse_dtype, parse_shape, sample_of_shape
    from tilegym import registry

    if shapes is None:
        return None
    if not ops:
        raise typer.BadParameter("--shapes are those of an op: name it")
    sizes = [parse_shape(text) for text in shapes.split(",")]
    dtype = parse_dtype((dtypes or "bf16").split(",")[0].strip())
    return {op: [sample_of_shape(registry.get_op(op), one, dtype) for one in sizes] for op in ops}


def _check(out: Path, device: torch.device) -> None:
    """Raise, before the work rather than after, if a table cannot be put there."""
    import torch

    from tilegym.benchmarking.results import check_writable
    from tilegym_cutile import tables
    from tilegym_cutile.runtime import target_of

    check_writable(out)
    if not out.exists():
        return
    if _times_mean_something(device):
        tables.read_for(target_of(torch.empty(0, device=device)), out)
    else:
        tables.read(out)


@contextmanager
def _ahead(jobs: int | None, planned: Plan, device: torch.device, limits: Limits) -> Iterator[dict[str, Any]]:
    """The option of `search` that says what does not compile, if kernels are to be compiled ahead."""
    from tilegym.benchmarking.plan import compile_ahead
    from tilegym_cutile.ahead import compiling_ahead

    if jobs is None:
        jobs = max(1, (os.cpu_count() or 2) // 2) if _times_mean_something(device) else 0
    if jobs == 0:
        yield {}
        return
    compile_ahead(planned, device, jobs)  # what the heuristics choose, which is run first
    with compiling_ahead(planned, device, limits, jobs) as why_not:
        yield {"why_not": why_not}


def _with_progress(begin: Callable[..., Iterator[Found | Failed]]) -> Iterator[Found | Failed]:
    """Results as they come, each told in a line; below, on a terminal, how far the search for the next one is."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        task = progress.add_task("the first", total=None)

        def tried(question: Question, number: int, of: int) -> None:
            about = f"{question.function.name} {question.key}"
            progress.update(task, completed=number, total=of, description=about)

        for result in begin(tried=tried):
            progress.console.print(_line(result), markup=False, highlight=False, soft_wrap=True)
            yield result


def _keep(result: Found | Failed, device: torch.device, out: Path | None) -> None:
    """Keep what was found where it differs from what would be answered anyhow.

    Raises:
        RecordError: `out` cannot be written, or is not what it was.
    """
    from tilegym.errors import RecordError
    from tilegym_cutile import tables, tuning
    from tilegym_cutile.search import Failed

    if isinstance(result, Failed) or not math.isfinite(result.best_ms):
        return
    question, best = result.question, result.best
    if _times_mean_something(device) and best != question.function.answer(**question.arguments):
        tuning.keep(question, best)
    if out is not None:
        try:
            tables.update(out, question.function.name, question.target, question.key, best if result.better else None)
        except OSError as error:
            raise RecordError(f"{out} cannot be written: {error.strerror or error}") from error


def _times_mean_something(device: torch.device) -> bool:
    """Whether kernels run there as they will for users, rather than in the interpreter."""
    return device.type != "cpu"


def _line(result: Found | Failed) -> str:
    row = _row(result)
    about = _call(row)
    if "reason" in row:
        return f"{about}: {row['reason']}"
    verdict = f"{_ms(row['best_ms'])} ms with {row['better']}" if row["better"] else "nothing is better"
    return f"{about}: {row['function']} {row['key']}: {_ms(row['heuristic_ms'])} ms, {verdict}; {row['tried']} tried"


def _call(row: dict[str, Any]) -> str:
    return " ".join(row[name] for name in ("op", "case", "dtype", "way"))


def _row(result: Found | Failed) -> dict[str, Any]:
    """A result as plain data."""
    from tilegym_cutile.search import Failed

    case = result.case
    row = {"op": case.op.name, "case": case.sample.name, "dtype": case.dtype_name, "way": result.direction}
    if isinstance(result, Failed):
        return {**row, "reason": result.reason}
    return {
        **row,
        "function": result.question.function.name,
        "key": result.question.key,
        "tried": result.tried,
        "heuristic_ms": result.plain_ms if math.isfinite(result.plain_ms) else None,
        "best_ms": result.best_ms if math.isfinite(result.best_ms) else None,
        "better": _difference(result.question.plain, result.best),
        "config": asdict(result.best),
        "ratios": [
            {"config": _difference(result.question.plain, config), "ratio": ratio}
            for config, ratio in sorted(result.ratios.items(), key=itemgetter(1))
        ],
        "failed": {str(config): reason for config, reason in result.failures.items()},
    }


def _difference(plain: Any, best: Any) -> str:
    """What is other than in the heuristic's configuration: "rows=2 num_worker_warps=8"."""
    before, after = _flat(asdict(plain)), _flat(asdict(best))
    return " ".join(f"{name}={value}" for name, value in after.items() if before.get(name) != value)


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """With the fields of configurations in the configuration among its own."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def _report(results: list[Found | Failed], planned: Plan, device: torch.device, rest: str | None) -> dict[str, Any]:
    """What to show; `rest` says why this is not all of the plan, if so."""
    from tilegym import cache

    rows = [_row(result) for result in results]
    silent = {case.op.name for case, _, _ in planned.entries} - {row["op"] for row in rows} if rest is None else ()
    left_out = dict.fromkeys(sorted(silent), "it asks no tuned function, or none that another call did not ask before")
    if rest is not None:
        left_out["the rest"] = rest
    if _times_mean_something(device):
        where = f"what is better is kept in {cache.directory()}"
    else:
        where = "kernels were interpreted, which says nothing of any GPU: nothing was kept"
    return {
        "device": str(device),
        "kept": where,
        "found": [row for row in rows if "reason" not in row],
        "failed": [row for row in rows if "reason" in row],
        "left_out": {**planned.left_out, **left_out},
    }


def _show(report: dict[str, Any], *, as_json: bool) -> None:
    from _tilegym_cli.tables import console, lines, show, show_json, table

    if as_json:
        show_json(report)
        return
    target = console()
    cells = [
        (
            *(_call(row), row["function"], row["tried"]),
            _ms(row["heuristic_ms"]),
            _ms(row["best_ms"]),
            row["better"] or None,
        )
        for row in report["found"]
    ]
    table(target, "Medians; results were right", _HEADINGS, cells)
    failed = {f"{row['function']} {config}": why for row in report["found"] for config, why in row["failed"].items()}
    lines(target, "Configurations that failed", failed)
    lines(target, "Not tuned", {_call(row): row["reason"] for row in report["failed"]})
    lines(target, "Left out", report["left_out"])
    show(target, f"On {report['device']} {report['kept']}.")


def _ms(milliseconds: float | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds:.4g}"
