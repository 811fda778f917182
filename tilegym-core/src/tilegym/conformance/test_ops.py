"""The tests; `tilegym.testing.pytest_plugin` fills in the cells of the backend named.

A test that comes with a later version of the suite says so: `test_new.since = 2`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tilegym.conformance.cells import Cell, declared
from tilegym.conformance.checks import check_bad_input, check_cell, check_gradient, why_refused

if TYPE_CHECKING:
    import torch

__all__ = ["test_bad_input_raises", "test_cell_conforms"]


def test_cell_conforms(tilegym_cell: Cell, tilegym_backend: str, tilegym_device: torch.device) -> None:
    """The call gives what the contract says, or the backend says why it does not take it."""
    reason = why_refused(tilegym_cell, tilegym_backend, tilegym_device)
    if reason is not None:
        if declared(tilegym_backend).complete:
            pytest.fail(f"refused, though {tilegym_backend} is said to be complete: {reason}", pytrace=False)
        pytest.skip(f"refused: {reason}")
    check = check_gradient if tilegym_cell.gradient else check_cell
    check(tilegym_cell, tilegym_backend, tilegym_device)


def test_bad_input_raises(tilegym_op: str, tilegym_backend: str, tilegym_device: torch.device) -> None:
    """What breaks the contract raises, and writes nothing."""
    check_bad_input(tilegym_op, tilegym_backend, tilegym_device)
