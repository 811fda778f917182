"""The kernels of each backward, too, compile for every architecture and spill on none."""

from __future__ import annotations

import pytest
import torch

from tests.cutile.spills import ALLOWED
from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.ops.rms_norm import rms_norm_backward
from tilegym_cutile.ops.silu_and_mul import silu_and_mul_backward
from tilegym_cutile.ops.softmax import softmax_backward
from tilegym_cutile.runtime import ARCHITECTURES, recording

M = 4096


def softmax(n, dtype):
    softmax_backward(torch.empty(M, n, dtype=dtype, device="meta"), torch.empty(M, n, dtype=dtype, device="meta"))


def silu_and_mul(n, dtype):
    gradient = torch.empty(M, n, dtype=dtype, device="meta")
    silu_and_mul_backward(gradient, torch.empty(M, 2 * n, dtype=dtype, device="meta"))


def rms_norm(n, dtype):
    x, weight = torch.empty(M, n, dtype=dtype, device="meta"), torch.empty(n, dtype=dtype, device="meta")
    rms_norm_backward(x, x, weight, weight, torch.empty(M, device="meta"))


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(
    ("backward", "n", "dtype", "kernels"),
    [
        (softmax, 16384, torch.float32, ["softmax_backward_rows"]),
        (softmax, 100_000, torch.bfloat16, ["softmax_backward_chunks"]),
        (silu_and_mul, 14336, torch.bfloat16, ["silu_and_mul_backward_tiles"]),
        (rms_norm, 5000, torch.bfloat16, ["rms_norm_backward_rows", "sum_rows_tiles", "sum_rows_tiles"]),
        (rms_norm, 8192, torch.float32, ["rms_norm_backward_rows", "sum_rows_tiles", "sum_rows_tiles"]),
        (
            rms_norm,
            20_000,
            torch.float32,
            ["rms_norm_backward_chunks", "rms_norm_backward_rows", "sum_rows_tiles", "sum_rows_tiles"],
        ),
    ],
)
def test_backward_kernels_compile_without_spills(backward, n, dtype, kernels, arch):
    with recording(arch=arch) as launches:
        backward(n, dtype)
    cases = [Case(op=backward.__name__, sample=f"{M}x{n}", dtype=dtype, launch=launch) for launch in launches]
    assert [case.kernel for case in cases] == kernels
    for case in cases:
        usage = compile_case(case, arch).usage
        assert 0 < usage.registers <= 255
        assert usage.stack == 0 or (case.kernel, arch) in ALLOWED, (case.kernel, usage)
