"""Each benchmark file runs: every one of its configurations at its first size, on every backend it names."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest

from .. import common

HERE = Path(__file__).parent
FILES = [file for folder in (HERE, HERE.parents[1] / "benchmarks") for file in sorted(folder.glob("bench_*.py"))]


class TestBenchmarks(common.PyTestCase):
    """A `PyTestCase`: skipped, with the reason, if a file wants a GPU and there is none."""

    @pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
    def test_file_runs(self, file):
        testing = pytest.importorskip("triton.testing", reason="benchmarks are written with triton.testing")
        self.setUp()
        defined = runpy.run_path(str(file)).values()
        marks = [value for value in defined if isinstance(value, testing.Mark)]
        assert marks, f"{file.name} defines no benchmark: expected a function under @triton.testing.perf_report"
        for mark in marks:
            for config in [mark.benchmarks] if isinstance(mark.benchmarks, testing.Benchmark) else mark.benchmarks:
                first = config.x_vals[0]
                sizes = first if isinstance(first, (list, tuple)) else [first] * len(config.x_names)
                for backend in config.line_vals:
                    given = dict(zip(config.x_names, sizes, strict=True)) | {config.line_arg: backend} | config.args
                    figure = mark.fn(**given)
                    assert all(0 < one < math.inf for one in (figure if isinstance(figure, tuple) else (figure,)))
