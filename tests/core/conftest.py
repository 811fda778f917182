"""Plugins as real distributions: a package and its metadata folder, in a directory on `sys.path`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from textwrap import dedent, indent
from typing import TYPE_CHECKING

import pytest

import tilegym
from tilegym import config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PLUGIN = """
from tilegym.hookspecs import Backend, ImplPack, OpPack, hookimpl

TILEGYM_API = 1
"""


def backends(*declared: str) -> str:
    """Source of a hook that returns backends, each given as the arguments of `Backend`."""
    made = ", ".join(f"Backend({one})" for one in declared)
    return f"@hookimpl\ndef tilegym_backends():\n    return [{made}]\n"


def implementation(
    op: str, backend: str, body: str = "return 'BACKEND'", *, parameters: str = "x", more: str = ""
) -> str:
    """Source of a file that implements an op."""
    return (
        "import torch\nfrom tilegym import register_impl\n\n"
        f"@register_impl({op!r}, backend={backend!r}{more})\n"
        f"def implementation({parameters}):\n" + indent(dedent(body).replace("BACKEND", backend), "    ") + "\n"
    )


@dataclass
class Site:
    """A directory on `sys.path` into which distributions are put."""

    path: Path
    monkeypatch: pytest.MonkeyPatch
    allowed: set[str] = field(default_factory=lambda: {"tilegym-core"})

    def install(
        self,
        distribution: str,
        plugin: str,
        files: Mapping[str, str] | None = None,
        *,
        header: str = PLUGIN,
        entry: str | None = None,
        version: str = "1.0",
        where: str = "",
    ) -> Path:
        """Install `distribution`, whose module `<package>.plugin` is `header` and `plugin`; returns the package."""
        name = distribution.replace("-", "_")
        package = self.path / where / name
        for file, text in {"__init__.py": "", "plugin.py": header + dedent(plugin), **(files or {})}.items():
            target = package / file
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.parent / "__init__.py").exists():
                (target.parent / "__init__.py").touch()
            target.write_text(dedent(text))
        self.metadata(distribution, f"{entry or distribution} = {name}.plugin", version=version, where=where)
        return package

    def metadata(self, distribution: str, entry_point: str, *, version: str = "1.0", where: str = "") -> Path:
        """Write a distribution's metadata folder alone, and load plugins anew."""
        info = self.path / where / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[tilegym]\n{entry_point}\n")
        (info / "RECORD").touch()
        if where:
            self.monkeypatch.syspath_prepend(self.path / where)
        self.allowed.add(distribution)
        self.reload()
        return info

    def backend(
        self, name: str, fields: str = "", ops: Mapping[str, str] | None = None, declarations: str = ""
    ) -> Path:
        """Install a distribution `NAME-dist` that provides a backend and files which implement ops of core."""
        package = f"{name.replace('-', '_')}_dist"
        source = f"{declarations}\n{backends(f'name={name!r}, {fields}')}"
        if ops:
            pack = f"ImplPack(backend={name!r}, package='{package}.ops')"
            source += f"@hookimpl\ndef tilegym_impl_packs():\n    return [{pack}]\n"
        files = {f"ops/{op}.py": implementation(op, name, body) for op, body in (ops or {}).items()}
        return self.install(f"{name}-dist", source, files)

    def reload(self) -> None:
        """Load plugins anew: core's own, and those installed here, whatever else the environment holds."""
        self.monkeypatch.setenv("TILEGYM_PLUGINS", ",".join(sorted(self.allowed)))
        tilegym.config.reload()


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Nothing but core is loaded, and no setting is in force, until the test says so."""
    for variable in [*config.Settings().as_dict(), *(name for name in os.environ if name.startswith("TILEGYM_"))]:
        monkeypatch.delenv(variable, raising=False)
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    made = Site(directory, monkeypatch)
    made.reload()
    yield made
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(directory)):
            del sys.modules[name]
