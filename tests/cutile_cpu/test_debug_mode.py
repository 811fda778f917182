"""Debug mode runs the kernel's own Python: same results, and a debugger sees tiles with their values."""

from __future__ import annotations

import inspect
import sys

import cuda.tile as ct
import pytest
import torch

import tilegym_cutile_cpu as cpu
from tests.cutile_cpu.cases import CASES
from tests.cutile_cpu.kernels import (  # noqa: F401  # importing them registers their cases
    arrays,
    atomics,
    casts,
    control_flow,
    elementwise,
    mma,
    reductions,
    rounding,
    shapes,
)
from tests.cutile_cpu.kernels.defects import every_block_writes_the_total, wrong_line

# No pass of the compiler has seen these operations, so multiplication and addition stay apart.
NOT_FUSED = {"fused_multiply_add_rounds_once", "fused_multiply_add_of_float64"}
# The function given to `ct.reduce` is compiled, and what it captures must be a constant then.
CAPTURES = "reduction_of_tuples_with_a_captured_value"


@pytest.mark.parametrize("name", sorted(set(CASES) - NOT_FUSED - {CAPTURES}))
def test_results_are_those_of_the_compiled_kernel(name: str) -> None:
    case = CASES[name]()
    cpu.launch(case.grid, case.kernel, case.args, debug=True)
    for position, expected in case.expected.items():
        torch.testing.assert_close(case.args[position], expected, rtol=case.rtol, atol=case.atol, equal_nan=True)


@ct.kernel
def stops(x, out):
    """A kernel with a breakpoint, a print, and a comparison of scalars."""
    tile = ct.load(x, (ct.bid(0),), (2,))
    total = ct.sum(tile)
    if total > 5:
        breakpoint()  # noqa: T100 - what is tested
    print("total", total, f"{tile:.1f}")  # noqa: T201 - likewise
    ct.store(out, (ct.bid(0),), tile * 2)


def test_a_breakpoint_sees_the_kernels_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = []

    def hook() -> None:
        frame = sys._getframe(1)
        variables = frame.f_locals
        stopped.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        assert repr(variables["tile"]) == "<tile[float32, (2,)] [3.0, 4.0]>"
        assert variables["tile"].tolist() == [3.0, 4.0]
        assert float(variables["total"]) == 7.0

    monkeypatch.setattr(sys, "breakpointhook", hook)
    x, out = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.zeros(4)
    with cpu.emulate(debug=True):
        ct.launch(None, (2,), stops, (x, out))
    _, first = inspect.getsourcelines(stops._pyfunc)
    assert stopped == [(__file__, "stops", first + 6)]
    assert out.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert capsys.readouterr().out.splitlines() == [
        "total <tile[float32, ()] 3.0> [1.0, 2.0]",
        "total <tile[float32, ()] 7.0> [3.0, 4.0]",
    ]


def test_the_sanitizer_watches_in_debug_mode() -> None:
    with pytest.raises(cpu.RaceError) as info:
        cpu.launch((4,), every_block_writes_the_total, (torch.ones(16), torch.zeros(1), 4), debug=True)
    assert (info.value.site.line, info.value.site.block) == (wrong_line(every_block_writes_the_total), (1, 0, 0))


def test_a_tile_is_no_condition() -> None:
    @ct.kernel
    def branches_on_a_tile(x):
        if ct.load(x, (0,), (2,)) > 0:
            pass

    with pytest.raises(TypeError, match=r"a tile of shape \(2,\) is no scalar"):
        cpu.launch((1,), branches_on_a_tile, (torch.zeros(2),), debug=True)


def test_errors_of_the_compiler_name_the_line() -> None:
    @ct.kernel
    def loads_three(x):
        ct.load(x, (0,), (3,))

    with pytest.raises(ct.TileTypeError, match="power of two") as info:
        cpu.launch((1,), loads_three, (torch.zeros(4),), debug=True)
    _, first = inspect.getsourcelines(loads_three._pyfunc)
    assert f'"{__file__}", line {first + 2}' in str(info.value)


def test_what_a_reduction_captures_must_be_constant() -> None:
    case = CASES[CAPTURES]()
    with pytest.raises(ct.TileTypeError, match="Cannot create a constant from a symbolic value"):
        cpu.launch(case.grid, case.kernel, case.args, debug=True)
