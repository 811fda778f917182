"""The distributions of this repository, built with no network, and fresh environments to install them in."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
MEMBERS = {path.parent.name: path.parent for path in ROOT.glob("tilegym-*/pyproject.toml")}
EXAMPLE = ROOT / "examples" / "tilegym-example-backend"


def build(project: Path, kind: str, into: Path) -> Path:
    """Build the "wheel" or "sdist" of a folder, with the hatchling that is installed here; `into` must be empty."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """The wheel of each member, built from the tree."""
    return {name: build(folder, "wheel", tmp_path_factory.mktemp("wheel")) for name, folder in MEMBERS.items()}


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the third-party packages of this one, and none of our distributions."""

    python: Path
    site: Path

    def run(
        self, *arguments: str, program: str = "python", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, deaf to the settings that this process runs with."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TILEGYM_"))}
        command = [str(self.python.with_name(program)), *arguments]
        return subprocess.run(command, cwd=cwd or self.site, env=environ, capture_output=True, text=True, check=False)

    def output(self, source: str) -> str:
        """What a script prints; it must succeed, and warn of nothing."""
        done = self.run("-c", source)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout.strip()

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), *arguments, "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def install(self, *wheels: Path) -> None:
        self.pip("install", "--no-index", "--no-deps", *map(str, wheels))

    def uninstall(self, distribution: str) -> None:
        self.pip("uninstall", "--yes", distribution)


@pytest.fixture(scope="session")
def third_party(tmp_path_factory) -> Path:
    """A folder with all that is installed here but our own distributions, by links."""
    folder = tmp_path_factory.mktemp("third-party")
    for place in map(Path, sys.path):
        if place.name in {"site-packages", "dist-packages"}:
            for entry in place.iterdir():
                link = folder / entry.name
                # Editable installations work through .pth files; earlier places on the path win.
                if "tilegym" not in entry.name and entry.suffix != ".pth" and not link.exists():
                    link.symlink_to(entry)
    return folder


@pytest.fixture(scope="session")
def environment(tmp_path_factory, third_party: Path, wheels: Mapping[str, Path]) -> Environment:
    """A fresh environment with the wheels of all members."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    (site,) = home.rglob("site-packages")
    (site / "third_party.pth").write_text(f"{third_party}\n")
    made = Environment(python=python, site=site)
    made.install(*wheels.values())
    return made


@pytest.fixture
def example(tmp_path: Path, environment: Environment) -> Iterator[str]:
    """The name of the stranger's distribution, installed there for one test."""
    environment.install(build(EXAMPLE, "wheel", tmp_path / "wheel"))
    yield EXAMPLE.name
    environment.uninstall(EXAMPLE.name)
