"""The GPU and the interpreter agree: every case runs on both, against one expectation."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import pytest
import torch

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

# What a GPU may do otherwise.
UNDETERMINED = {
    "undetermined_padding_is_poisoned": "the padding is not determined",
    "compare_and_swap_lets_one_lane_win": "which lane wins is not determined",
    "a_lock_orders_plain_accesses": "the order of the blocks is not determined",
    "division_by_zero_and_overflow_do_not_trap": "division by zero is not defined",
    "an_empty_grid_runs_nothing": "CUDA refuses a grid without blocks",
    "unsigned_division_by_zero_gives_all_ones": "division by zero is not defined",
}
# What tileiras 13.4 does not compile, though cuda-tile's front end lets it through.
REFUSED = {
    "arrays_without_dimensions": "0-dimension tile shape is not supported",
    **{f"uint{bits}_division": "is not allowed with 'unsigned' flag" for bits in (8, 16, 32, 64)},
}
# A few units in the last place: the GPU's functions are not correctly rounded, and sums come in another order.
RTOL = {torch.float64: 1e-13, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
LOOSER = {"mathematical_functions": 1e-3}  # one row asks for RoundingMode.APPROX


def move(value: Any, device: str) -> Any:
    """The argument on another device, its whole storage and strides included."""
    if isinstance(value, (tuple, list)):
        return type(value)(move(item, device) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    storage = value.untyped_storage()
    flat = torch.empty(0, dtype=value.dtype).set_(storage, 0, (storage.nbytes() // value.element_size(),), (1,))
    return flat.to(device, copy=True).as_strided(value.shape, value.stride(), value.storage_offset())


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(set(CASES) - set(UNDETERMINED) - set(REFUSED)))
def test_gpu(name: str) -> None:
    case = CASES[name]()
    args = move(case.args, "cuda")
    try:
        ct.launch(torch.cuda.current_stream(), case.grid, case.kernel, args)
    except ct.TileUnsupportedFeatureError as error:
        pytest.skip(f"not on this GPU: {error}")
    for position, expected in case.expected.items():
        rtol = max(case.rtol, LOOSER.get(name, RTOL.get(expected.dtype, 0.0)))
        torch.testing.assert_close(args[position].cpu(), expected, rtol=rtol, atol=case.atol or rtol, equal_nan=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", REFUSED)
def test_compiler_refuses(name: str) -> None:
    case = CASES[name]()
    with pytest.raises(ct.TileCompilerExecutionError, match=REFUSED[name]):
        ct.launch(torch.cuda.current_stream(), case.grid, case.kernel, move(case.args, "cuda"))
