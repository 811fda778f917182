"""The command still speaks when the import package `tilegym` is not, or no longer, that of tilegym-core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilegym
from _tilegym_cli import foreign
from tilegym.errors import PluginWarning

REINSTALL = "python3 -m pip install --force-reinstall --no-deps ./tilegym-core"


def run_main(path, options=()):
    """What the console script does, with a folder put before all others on `sys.path`."""
    environment = os.environ | {"PYTHONPATH": str(path)}
    command = [sys.executable, *options, "-c", "from _tilegym_cli import main; main()", "backends"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd="/")


@pytest.fixture
def theirs(tmp_path):
    """A folder with another package `tilegym`."""
    package = tmp_path / "theirs" / "tilegym"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("def dispatch(*args, **kwargs): ...\n")
    return package


def metadata_of_theirs(folder):
    info = folder / "tilegym-1.3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tilegym\nVersion: 1.3.0\n")


def test_another_package_first_on_the_path(theirs):
    done = run_main(theirs.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"({theirs / '__init__.py'}) is not that of tilegym-core" in done.stderr
    assert "PYTHONPATH" in done.stderr
    assert REINSTALL in done.stderr


def test_their_distribution_installed_over_ours(theirs):
    """As pip does it: all our files stay, but for those of which the other distribution has one of the same name."""
    ours = Path(tilegym.__file__).parent
    shutil.copytree(ours, theirs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__init__.py"))
    metadata_of_theirs(theirs.parent)
    done = run_main(theirs.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not that of tilegym-core" in done.stderr
    assert "python3 -m pip uninstall tilegym" in done.stderr
    assert REINSTALL in done.stderr


def test_what_their_uninstallation_leaves(tmp_path):
    """`pip uninstall tilegym` takes our `__init__.py` with it, and Python sees a folder without one."""
    ours = Path(tilegym.__file__).parent
    shutil.copytree(ours, tmp_path / "tilegym", ignore=shutil.ignore_patterns("__init__.py"))
    shutil.copytree(Path(foreign.__file__).parent, tmp_path / "_tilegym_cli")
    done = run_main(tmp_path, options=["-S"])  # without site-packages, where the whole one lies
    assert (done.returncode, done.stdout) == (1, "")
    assert f"({tmp_path / 'tilegym'}) is not that of tilegym-core" in done.stderr
    assert REINSTALL in done.stderr


def test_a_package_of_ours_that_lacks_files(theirs):
    shutil.copy(Path(tilegym.__file__).with_name("__about__.py"), theirs)
    shutil.copy(tilegym.__file__, theirs)
    done = run_main(theirs.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "it lacks tilegym.config, tilegym.plugins, tilegym.ops, tilegym.testing" in done.stderr
    assert REINSTALL in done.stderr


def test_a_package_that_does_not_import(theirs):
    (theirs / "__init__.py").write_text("import no_such_module\n")
    done = run_main(theirs.parent)
    assert (done.returncode, done.stdout) == (1, "")
    assert "The package 'tilegym' does not import: ModuleNotFoundError: No module named 'no_such_module'" in done.stderr


def test_ours_is_ours():
    assert foreign.why_not_ours() is None


def test_their_distribution_beside_ours_is_warned_of(site):
    metadata_of_theirs(site.path)
    assert foreign.foreign_distribution() == "1.3.0"
    site.reload()
    with pytest.warns(PluginWarning, match="python3 -m pip uninstall tilegym"):
        tilegym.get_available_backends()


def test_importing_the_command_imports_nothing_of_tilegym():
    code = "import sys, _tilegym_cli, _tilegym_cli.foreign; print([m for m in sys.modules if m.startswith('tilegym')])"
    assert printed(code) == "[]"


def test_help_does_not_wait_for_torch():
    assert printed("import sys, _tilegym_cli.app; print('torch' in sys.modules)") == "False"


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
