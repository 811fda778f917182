"""For every suite: GPU and slow tests, and a fresh start for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.turns import leave_out, of_marked, take_turns
from tilegym.testing import isolated

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require-gpu", action="store_true", help="a gpu test that finds no GPU fails")
    parser.addoption("--require-browser", action="store_true", help="a test that finds no Chromium fails")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out slow tests, and those whose turn it is not, unless `-m` speaks of slow ones."""
    take_turns(config, items, of_marked)
    leave_out(config, items, {item for item in items if item.get_closest_marker("slow")})


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None or torch.cuda.is_available():
        return
    reason = "no CUDA device: torch.cuda.is_available() is False"
    if item.config.getoption("--require-gpu"):
        pytest.fail(f"--require-gpu: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    """The preferred backend, run-time registrations and settings are as before when a test is over."""
    with isolated():
        yield
