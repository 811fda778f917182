"""Every op has a benchmark file."""

from pathlib import Path

from tilegym import registry

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_op_has_a_file():
    names = {file.stem.removeprefix("bench_") for file in BENCHMARKS.glob("bench_*.py")}
    assert names == {name for name in registry.op_names() if "." not in name}
