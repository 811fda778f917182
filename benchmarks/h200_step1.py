"""softmax, rms_norm and silu_and_mul of backend `cutile` on an H200: right against float64, and timed beside torch.

    python benchmarks/h200_step1.py results.json            # about a minute, most of it torch.compile
    python benchmarks/h200_step1.py results.json --sweep    # and every configuration below, about four minutes

Times are medians of `triton.testing.do_bench`; GB/s counts each input read once and each output written once.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import itertools
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from triton.testing import do_bench

import tilegym
from tilegym_cutile.rows import RowConfig, next_power_of_2
from tilegym_cutile.runtime import Hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

BOUND = 8e-3  # of the relative norm of the error, bfloat16
EPS = 1e-6


@dataclass(frozen=True)
class Case:
    """One op on one shape."""

    op: str
    shape: tuple[int, int]
    bar: float
    """GB/s that the project wants at least."""

    @property
    def columns(self) -> int:
        """Columns of the output."""
        return self.shape[1] // 2 if self.op == "silu_and_mul" else self.shape[1]

    @property
    def bytes(self) -> int:
        """Read and written."""
        m, n = self.shape
        weight = n if self.op == "rms_norm" else 0
        return 2 * (m * n + m * self.columns + weight)


CASES = [
    Case("softmax", (32768, 1024), 3450),
    Case("softmax", (16384, 4096), 3900),
    Case("softmax", (8192, 16384), 3950),
    Case("softmax", (4096, 65536), 3400),
    Case("softmax", (32768, 257), 1500),
    Case("rms_norm", (32768, 1024), 3550),
    Case("rms_norm", (16384, 4096), 3870),
    Case("rms_norm", (8192, 8192), 3800),
    Case("silu_and_mul", (8192, 2 * 14336), 4200),
]


def inputs(case: Case) -> tuple[Tensor, ...]:
    """Seeded bfloat16 inputs of a case."""
    generator = torch.Generator("cuda").manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    m, n = case.shape
    return (randn(m, n), randn(n)) if case.op == "rms_norm" else (randn(m, n),)


def ours(case: Case) -> Callable[..., Tensor]:
    """The public call."""
    if case.op == "rms_norm":
        return lambda x, weight: tilegym.ops.rms_norm(x, weight.shape, weight, EPS, backend="cutile")
    op = getattr(tilegym.ops, case.op)
    return lambda x: op(x, backend="cutile")


def torchs(case: Case) -> Callable[..., Tensor]:
    """The same in torch: what is timed, and in float64 the reference."""
    if case.op == "softmax":
        return lambda x: torch.softmax(x, -1)
    if case.op == "rms_norm":
        return lambda x, weight: F.rms_norm(x, weight.shape, weight, EPS)
    return lambda x: F.silu(x[..., : case.columns]) * x[..., case.columns :]


def measure(case: Case) -> dict[str, Any]:
    """Error, then times, of one case."""
    args = inputs(case)
    expected = torchs(case)(*(arg.double() for arg in args))
    error = float((ours(case)(*args).double() - expected).norm() / expected.norm())
    del expected
    compiled = torch.compile(torchs(case))
    candidates = {"cutile": ours(case), "torch": torchs(case), "torch.compile": compiled}
    speeds = {name: gigabytes_per_second(case, lambda f=f: f(*args)) for name, f in candidates.items()}
    torch.compiler.reset()
    return {"op": case.op, "shape": case.shape, "error": error, "bound": BOUND, "bar": case.bar, "GB/s": speeds}


def gigabytes_per_second(case: Case, f: Callable[[], Any], rep: int = 100) -> float:
    """By the median time."""
    return case.bytes / do_bench(f, rep=rep, return_mode="median") * 1e-6


def copy_speed() -> float:
    """GB/s of a device copy, read and written: the ceiling."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / do_bench(lambda: target.copy_(source), return_mode="median") * 1e-6


def host_cost() -> dict[str, float]:
    """Microseconds that one call takes of the CPU, on inputs too small to keep the GPU busy."""
    x = torch.randn(8, 64, device="cuda", dtype=torch.bfloat16)
    calls = {"cutile": lambda: tilegym.ops.softmax(x, backend="cutile"), "torch": lambda: torch.softmax(x, -1)}
    costs = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(1000):
            call()
        costs[name] = (time.perf_counter() - start) * 1e3
        torch.cuda.synchronize()
    return costs


HINTS = [
    Hints(occupancy=occupancy, num_worker_warps=warps)
    for occupancy, warps in [(None, None), (4, None), (8, None), (None, 8), (2, 8), (4, 8)]
]


def configurations(case: Case) -> Iterator[RowConfig]:
    """What the sweep tries for a case."""
    columns = next_power_of_2(case.columns)
    if case.op == "silu_and_mul":
        for width, hints in itertools.product((1024, 2048, 4096, 8192), HINTS):
            yield RowConfig(chunked=True, rows=1, columns=width, hints=hints)
    elif columns > 32768:
        clusters = [Hints(num_ctas=2, num_worker_warps=8), Hints(num_ctas=4, occupancy=2, num_worker_warps=8)]
        for width, hints in itertools.product((4096, 8192, 16384, 32768), HINTS + clusters):
            yield RowConfig(chunked=True, rows=1, columns=width, hints=hints)
    else:
        for elements, hints in itertools.product((1024, 2048, 4096, 8192, 16384), HINTS):
            if columns <= elements <= max(columns, 8192):
                yield RowConfig(chunked=False, rows=elements // columns, columns=columns, hints=hints)


@contextlib.contextmanager
def using(case: Case, config: RowConfig) -> Iterator[None]:
    """Have the op choose `config`, whatever its heuristic says."""
    module = importlib.import_module(f"tilegym_cutile.ops.{case.op}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "heuristic", lambda *_, **__: config)
        if config.hints.num_ctas:
            # CTAs share out a tile by its first dimension, where wide lanes would lose their vector loads.
            patch.setattr(module, "_WIDTH", 1)
        yield


def sweep(case: Case) -> list[dict[str, Any]]:
    """Every configuration's speed, the fastest first; one that does not compile, or computes otherwise, says so."""
    args = inputs(case)
    op = ours(case)
    expected = op(*args)
    rows = []
    for config in configurations(case):
        row: dict[str, Any] = {"op": case.op, "shape": case.shape, "config": dataclasses.asdict(config)}
        with using(case, config):
            try:
                row["difference"] = float((op(*args) - expected).float().norm() / expected.float().norm())
                row["GB/s"] = gigabytes_per_second(case, lambda: op(*args), rep=40)
            except Exception as error:  # noqa: BLE001 - whatever the compiler says of one, the others go on
                row |= {"GB/s": 0.0, "failed": f"{type(error).__name__}: {error}"[:300]}
        rows.append(row)
    return sorted(rows, key=lambda row: -row["GB/s"])


def main() -> None:
    """Measure, print a line per case, and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="where the JSON goes")
    parser.add_argument("--sweep", action="store_true", help="also try every configuration")
    parser.add_argument("--only", help="cases whose name contains this, such as softmax or 65536")
    options = parser.parse_args()
    device = torch.cuda.get_device_properties(0)
    report: dict[str, Any] = {"device": device.name, "torch": torch.__version__, "copy GB/s": copy_speed()}
    report |= {"host µs": host_cost(), "cases": [], "sweep": []}
    print(json.dumps(report))
    for case in CASES:
        name = f"{case.op} {case.shape[0]}x{case.shape[1]}"
        if options.only and options.only not in name:
            continue
        result = measure(case)
        report["cases"].append(result)
        speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in result["GB/s"].items())
        print(f"{name}: error {result['error']:.1e} of {BOUND:.0e}; GB/s: {speeds}; bar {case.bar:,.0f}", flush=True)
        if options.sweep:
            tried = sweep(case)
            report["sweep"] += tried
            for row in tried[:4]:
                print(f"    {row['GB/s']:,.0f} {row['config']}", flush=True)
        options.output.write_text(json.dumps(report, indent=1))
    if any(result["error"] > BOUND for result in report["cases"]):
        sys.exit("an error is beyond its bound")


if __name__ == "__main__":
    main()
