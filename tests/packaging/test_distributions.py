"""What is in the wheels and sdists, and that all distributions are of one version."""

from __future__ import annotations

import email
import re
import runpy
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.packaging.conftest import MEMBERS, ROOT, build

if TYPE_CHECKING:
    from pathlib import Path

VERSION = runpy.run_path(str(MEMBERS["tilegym-core"] / "src" / "tilegym" / "__about__.py"))["__version__"]
STUB = "tilegym/ops/__init__.pyi"
LICENSE = (ROOT / "LICENSE").read_text(encoding="utf-8")
PLUGINS = {
    "tilegym-core": None,
    "tilegym-torchref": "torchref = tilegym_torchref.plugin",
    "tilegym-cutile": "cutile = tilegym_cutile.plugin",
    "tilegym-cutile-cpu": "cutile-cpu = tilegym_cutile_cpu.plugin",
}


@pytest.fixture(scope="module")
def sdists(tmp_path_factory):
    return {name: build(folder, "sdist", tmp_path_factory.mktemp("sdist")) for name, folder in MEMBERS.items()}


def contents(wheel: Path) -> dict[str, str]:
    """Each file of a wheel; those of its metadata folder under their own names."""
    with zipfile.ZipFile(wheel) as archive:
        return {re.sub(r"^[^/]+\.dist-info/", "", name): archive.read(name).decode() for name in archive.namelist()}


def test_every_member_is_known_here():
    assert MEMBERS.keys() == PLUGINS.keys()


@pytest.mark.parametrize("name", MEMBERS)
def test_wheel(name, wheels):
    files = contents(wheels[name])
    package = "tilegym" if name == "tilegym-core" else name.replace("-", "_")
    assert files[f"{package}/py.typed"] == ""
    assert files["licenses/LICENSE"] == LICENSE
    metadata = email.message_from_string(files["METADATA"])
    assert metadata["Name"] == name
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Author"] == "The TileGym authors"
    assert metadata.get_payload() == (MEMBERS[name] / "README.md").read_text(encoding="utf-8")
    assert "](.." not in metadata.get_payload(), "a link that leaves the distribution leads nowhere on an index"
    entry_points = files["entry_points.txt"]
    assert PLUGINS[name] is None or f"[tilegym]\n{PLUGINS[name]}" in entry_points
    assert not [file for file in files if file.startswith(("tests", "src"))]


def test_wheel_of_core_brings_the_command_and_the_stub(wheels):
    files = contents(wheels["tilegym-core"])
    assert "[console_scripts]\ntilegym = _tilegym_cli:main\n" in files["entry_points.txt"]
    assert "[pytest11]\ntilegym = tilegym.testing.pytest_plugin\n" in files["entry_points.txt"]
    assert "_tilegym_cli/py.typed" in files
    sources = MEMBERS["tilegym-core"] / "src"
    templates = {path.relative_to(sources).as_posix() for path in sources.rglob("templates/**/*") if path.is_file()}
    assert "_tilegym_cli/report/templates/page.js" in templates
    assert templates <= files.keys()
    assert (
        "def softmax(x: Tensor, use_tma: bool=False, *, backend: str | None=None" in files["tilegym/ops/__init__.pyi"]
    )


@pytest.mark.parametrize("name", MEMBERS)
def test_wheel_from_the_sdist_is_the_wheel_from_the_tree(name, sdists, wheels, tmp_path):
    with tarfile.open(sdists[name]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Pythons before 3.11.4 have none
        archive.extractall(tmp_path / "sdist")  # noqa: S202 - it was built here
    (unpacked,) = (tmp_path / "sdist").iterdir()
    assert (unpacked / "LICENSE").read_text(encoding="utf-8") == LICENSE
    rebuilt = build(unpacked, "wheel", tmp_path / "wheel")
    assert rebuilt.name == wheels[name].name
    assert contents(rebuilt) == contents(wheels[name])


def test_members_require_each_other_at_exactly_this_version(wheels):
    required = {
        name: email.message_from_string(contents(wheel)["METADATA"]).get_all("Requires-Dist", [])
        for name, wheel in wheels.items()
    }
    assert {name: [one for one in ones if one.startswith("tilegym")] for name, ones in required.items()} == {
        "tilegym-core": [],
        "tilegym-torchref": [f"tilegym-core=={VERSION}"],
        "tilegym-cutile": [f"tilegym-core=={VERSION}"],
        "tilegym-cutile-cpu": [f"tilegym-cutile=={VERSION}"],
    }
