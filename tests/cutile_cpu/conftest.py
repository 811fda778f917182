import pytest
import torch


@pytest.fixture(autouse=True)
def sanitized(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of these tests is watched unless it says otherwise."""
    monkeypatch.setenv("TILEGYM_CUTILE_CPU_SANITIZE", "1")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
