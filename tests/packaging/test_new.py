"""What `tilegym new` writes is linted, formatted, typed, and passes at once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from _tilegym_cli.app import app
from tests.packaging.conftest import MEMBERS, ROOT, build

pytestmark = pytest.mark.xdist_group("tilegym new")  # one tree for all

OPS = {
    "new_elementwise": ("elementwise", None),
    "new_row": ("row", None),
    "new_matmul": ("matmul", None),
    "new_gated": ("elementwise", "input: Tensor, up: Tensor, other: Tensor, alpha: float = 0.5, beta: float = -2.0"),
    "new_plain": ("elementwise", "x: Tensor"),
}
DISTRIBUTIONS = {"new_backend": "backend", "new_pack": "pack"}
NOT_SOURCES = shutil.ignore_patterns("__pycache__", ".*_cache")


def new(*arguments: str) -> list[Path]:
    """Run `tilegym new` and return the files that it says it wrote."""
    done = CliRunner().invoke(app, ["new", *arguments])
    assert done.exit_code == 0, done.output
    return [Path(line.removeprefix("wrote ")) for line in done.stdout.splitlines() if line.startswith("wrote ")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the checkout's sources and tests, as yet without anything new."""
    root = tmp_path_factory.mktemp("tree")
    for folder in [*MEMBERS, "tests"]:
        shutil.copytree(ROOT / folder, root / folder, ignore=NOT_SOURCES)
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.name != "__init__.pyi"}


@pytest.fixture(scope="module")
def written(tree) -> list[Path]:
    """New ops in the tree, and new distributions in its folder `examples`: all that has changed."""
    before = contents(tree)
    files = []
    for name, (kind, signature) in OPS.items():
        options = [] if signature is None else ["--signature", signature]
        files += new("op", name, "--kind", kind, "--path", str(tree), *options)
    for name, what in DISTRIBUTIONS.items():
        files += new(what, name, "--path", str(tree / "examples"))
    after = contents(tree)
    assert sorted(after.keys() - before.keys()) == sorted(files)
    assert {path: after[path] for path in before} == before
    return files


def run(tree: Path, *arguments: str) -> str:
    """A module run in the tree, on the tree's own sources; it must succeed."""
    path = os.pathsep.join(str(tree / member / "src") for member in MEMBERS)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TILEGYM_"))}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=tree, env=environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources(written: list[Path]) -> list[str]:
    return [str(path) for path in written if path.suffix == ".py"]


def test_it_is_linted_and_formatted(tree, written):
    settings = ("--config", "pyproject.toml", "--no-cache")
    run(tree, "ruff", "check", *settings, *sources(written))
    run(tree, "ruff", "format", "--check", *settings, *sources(written))
    for distribution in (tree / "examples").iterdir():  # by its own settings, where TileGym is somebody else's
        run(distribution, "ruff", "check", "--select=E,F,I,W", "--no-cache")
        run(distribution, "ruff", "format", "--check", "--no-cache")


def test_it_is_typed(tree, written):
    typed = [path for path in sources(written) if "/src/" in path]
    assert len(typed) == 3 * len(OPS) + 10
    found = "\n".join(f'  "{path.relative_to(tree).as_posix()}",' for path in tree.glob("*/*/src"))
    settings = (tree / "pyproject.toml").read_text()
    (tree / "mypy.toml").write_text(settings.replace('  "examples/tilegym-example-backend/src",', found))
    run(tree, "mypy", "--config-file", "mypy.toml", *typed)


@pytest.mark.usefixtures("written")
def test_new_ops_pass_at_once(tree):
    for tests, chosen, least in (
        ("tests/torchref/test_conformance.py", " or ".join(OPS), 300),
        ("tests/cutile_cpu/test_conformance.py", "new_row or new_matmul", 40),
        ("tests/ops", "new_gated and not export", 30),  # of the longest signature
    ):
        told = run(tree, "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", chosen)
        assert int(re.search(r"(\d+) passed", told)[1]) > least


@pytest.mark.usefixtures("written")
def test_their_benchmarks_run(tree):
    """On a CPU, with a clock for CPUs: triton's own needs a GPU."""
    for file in (tree / "tests" / "benchmark").glob("bench_new_*.py"):
        text = file.read_text()
        on_cpu = text.replace('"cuda"', '"cpu"').replace(
            "\n\nALL_BACKENDS", "\n\ntriton.testing.do_bench = lambda fn: 1.0\nALL_BACKENDS", 1
        )
        assert on_cpu.count("cpu") == on_cpu.count("lambda fn") == 1
        (file.with_name(f"bench_cpu_{file.name}")).write_text(on_cpu)
    told = run(tree, "pytest", "-q", "-p", "no:cacheprovider", "tests/benchmark", "-k", "bench_cpu")
    assert f"{len(OPS)} passed" in told
    for file in (tree / "tests" / "benchmark").glob("bench_cpu_*.py"):
        file.unlink()


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_new_distribution_installs_and_passes(tree, name, environment, tmp_path):
    distribution = tree / "examples" / f"tilegym-{name.replace('_', '-')}"
    environment.install(build(distribution, "wheel", tmp_path / "wheel"))
    try:
        done = environment.run(
            "-m", "pytest", "-q", "-p", "no:cacheprovider", str(distribution / "tests"), cwd=distribution
        )
    finally:
        environment.uninstall(distribution.name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 100
