"""Every operation of cuda-tile has a handler, and every handler runs in some test."""

from __future__ import annotations

import cuda.tile._compile  # noqa: F401  # importing it defines every operation
import torch
from cuda.tile._ir.cast_ops import AddrSpaceCast, ReinterpretPointer
from cuda.tile._ir.core_ops import Assign
from cuda.tile._ir.ir import Operation

from tests.cutile_cpu.cases import CASES, Case
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
from tests.cutile_cpu.kernels.debugging import print_values
from tilegym_cutile.signature import constraints
from tilegym_cutile_cpu import handlers
from tilegym_cutile_cpu.interpreter import final_ir
from tilegym_cutile_cpu.lowering import CONTROL, EFFECT, ERASED, PURE

# Only debug mode meets it: a pass removes it from the final IR.
REMOVED_BY_A_PASS = {Assign}
# The final IR of a tile kernel cannot hold what has no bytecode.
WITHOUT_BYTECODE = {AddrSpaceCast, ReinterpretPointer}


def operations(root: type[Operation] = Operation) -> set[type[Operation]]:
    return {root, *(op for child in root.__subclasses__() for op in operations(child))} - {Operation}


def handled() -> list[type[Operation]]:
    assert handlers.__all__
    return [*PURE, *EFFECT, *CONTROL, *ERASED]


def test_every_operation_has_one_handler() -> None:
    assert len(handled()) == len(set(handled()))
    assert operations() - set(handled()) == WITHOUT_BYTECODE
    assert set(handled()) <= operations()


def test_operations_without_a_handler_cannot_occur() -> None:
    for operation in WITHOUT_BYTECODE:
        assert operation.generate_bytecode is Operation.generate_bytecode, operation


def test_every_handler_runs_in_a_case() -> None:
    printing = Case(print_values, (1,), (torch.zeros(2), torch.zeros(2, dtype=torch.uint64), 2), {})
    one_per_kernel = {case.kernel._pyfunc.__qualname__: case for case in (make() for make in CASES.values())}
    seen = {
        type(op)
        for case in (*one_per_kernel.values(), printing)
        for op in final_ir(case.kernel, constraints(case.kernel, case.args)).traverse()
    }
    assert len(one_per_kernel) >= 60
    assert set(handled()) - REMOVED_BY_A_PASS == seen
