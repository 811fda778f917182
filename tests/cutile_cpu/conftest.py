"""Fixtures of the suite of the interpreter, and which of the contracts' cells it goes through by default."""

from pathlib import Path

import pytest
import torch

from tests.turns import take_turns


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The interpreter takes minutes for all: each sample of a contract is tried in one dtype."""
    take_turns(config, items, _sample)


def _sample(item: pytest.Item) -> object | None:
    callspec = getattr(item, "callspec", None)
    cell = None if callspec is None else callspec.params.get("tilegym_cell")
    if cell is None or item.path.parent != Path(__file__).parent:
        return None
    return cell.op, cell.sample.name, cell.gradient


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of these tests is watched unless it says otherwise."""
    monkeypatch.setenv("TILEGYM_CUTILE_CPU_SANITIZE", "1")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
