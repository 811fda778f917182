"""What README.md shows is true: its Python runs, and its table of variables is that of the settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilegym

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["call", "implement", "ship"])
def test_example_runs(example, monkeypatch):
    monkeypatch.setenv("TILEGYM_PLUGINS", "tilegym-torchref")
    tilegym.config.reload()
    exec(compile(example, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 - our own README


def test_every_variable_is_in_the_table():
    assert set(re.findall(r"`([A-Z]+_[A-Z_]+)[`=]", README)) == set(tilegym.config.Settings().as_dict())


def test_links_lead_somewhere():
    for document in ("README.md", "CONTRIBUTING.md"):
        targets = re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text(encoding="utf-8"))
        missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
        assert missing == []
