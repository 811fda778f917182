"""Build hook: writes the stub of `tilegym.ops`, so that editors and type checkers know every op's signature."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """Runs `tilegym/stubs.py` by path: nothing is installed yet when a wheel is built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        """Write the stub before files are collected."""
        source = Path(self.root, "src", "tilegym")
        runpy.run_path(str(source / "stubs.py"))["write_stub"](source)
