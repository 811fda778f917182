"""Every operation of cuTile, run by kernels written for it and compared with torch or numpy."""

from __future__ import annotations

import pytest
import torch

import tilegym_cutile_cpu as cpu
from tests.cutile_cpu.cases import CASES
from tests.cutile_cpu.kernels import (  # noqa: F401  # importing them registers their cases
    arrays,
    atomics,
    casts,
    control_flow,
    debugging,
    elementwise,
    mma,
    reductions,
    rounding,
    shapes,
)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    case = CASES[name]()
    with cpu.record_launches() as launches:
        cpu.launch(case.grid, case.kernel, case.args)
    assert [launch.kernel_name for launch in launches] == [case.kernel._pyfunc.__name__]
    for position, expected in case.expected.items():
        torch.testing.assert_close(case.args[position], expected, rtol=case.rtol, atol=case.atol, equal_nan=True)
