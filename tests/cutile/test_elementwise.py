"""Elementwise kernels: how tensors are seen, and that the backward kernels compile without spills."""

from __future__ import annotations

import pytest
import torch

from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.elementwise import in_step
from tilegym_cutile.ops.geglu import geglu_backward
from tilegym_cutile.ops.gelu import gelu_backward
from tilegym_cutile.ops.relu import relu_backward
from tilegym_cutile.ops.swiglu import swiglu_backward
from tilegym_cutile.runtime import ARCHITECTURES, recording


def test_tensors_that_lie_alike_are_one_row():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert [tuple(array.shape) for array in in_step(x, torch.empty_like(x))] == [(1, 120), (1, 120)]


def test_tensors_that_lie_otherwise_are_walked_by_rows():
    x = torch.randn(6, 4).t()
    arrays = in_step(x, x.contiguous())
    assert [array.stride() for array in arrays] == [(1, 4), (6, 1)]
    torch.testing.assert_close(arrays[0], arrays[1])


def test_rows_are_as_long_as_all_tensors_allow():
    left, right = torch.randn(3, 8, 5).chunk(2, dim=1)
    arrays = in_step(left, right, torch.empty(left.shape))
    assert [array.stride() for array in arrays] == [(40, 1), (40, 1), (20, 1)]
    assert torch.equal(arrays[1].flatten(), right.flatten())


def test_halves_that_lie_alike_with_gaps_between_are_walked_by_rows():
    left, right = torch.randn(3, 8).chunk(2, dim=1)
    assert [tuple(array.shape) for array in in_step(left, right)] == [(3, 4), (3, 4)]


def test_a_number_without_dimensions_is_one_row():
    assert [tuple(array.shape) for array in in_step(torch.ones(()), torch.ones(()))] == [(1, 1), (1, 1)]


def meta(dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(8192, 4096, dtype=dtype, device="meta")


BACKWARDS = {
    "gelu_backward_tiles": lambda x: gelu_backward(x, x),
    "gelu_tanh_backward_tiles": lambda x: gelu_backward(x, x, "tanh"),
    "relu_backward_tiles": lambda x: relu_backward(x, x),
    "gelu_and_mul_backward_tiles": lambda x: geglu_backward(x[:, :2048], x, 1),
    "gelu_tanh_and_mul_backward_tiles": lambda x: geglu_backward(x[:4096], x, 0, "tanh"),
    "silu_and_mul_backward_tiles": lambda x: swiglu_backward(x, x, x),
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kernel", BACKWARDS)
def test_backward_kernels_compile_without_spills(kernel, dtype, arch):
    with recording(arch=arch) as launches:
        BACKWARDS[kernel](meta(dtype))
    (case,) = [Case(op=kernel, sample="8192x4096", dtype=dtype, launch=launch) for launch in launches]
    assert case.kernel == kernel
    usage = compile_case(case, arch).usage
    assert 0 < usage.registers <= 255
    assert usage.stack == 0
