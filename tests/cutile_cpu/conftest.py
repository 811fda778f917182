"""Fixtures of the suite of the interpreter, and which of the contracts' cells it goes through by default."""

import zlib
from pathlib import Path

import pytest
import torch


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, unless `-m` speaks of slow tests, what takes the interpreter minutes: each sample has one dtype."""
    if "slow" in config.option.markexpr:
        return
    dtypes: dict[str, list[pytest.Item]] = {}
    for item in items:
        callspec = getattr(item, "callspec", None)
        cell = None if callspec is None else callspec.params.get("tilegym_cell")
        if cell is not None and item.path.parent == Path(__file__).parent:
            dtypes.setdefault(f"{cell.op} {cell.sample.name} {cell.gradient}", []).append(item)
    turns = {same[zlib.crc32(name.encode()) % len(same)] for name, same in dtypes.items()}
    late = {item for same in dtypes.values() for item in same} - turns
    if late:
        config.hook.pytest_deselected(items=list(late))
        items[:] = [item for item in items if item not in late]


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of these tests is watched unless it says otherwise."""
    monkeypatch.setenv("TILEGYM_CUTILE_CPU_SANITIZE", "1")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
