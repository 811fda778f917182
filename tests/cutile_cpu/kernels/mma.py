"""Matrix products of every dtype."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def matmul(a, b, c, m: Int, n: Int, k: Int):
    """a: (M, K), b: (K, N), c: (M, N)."""
    row, column = ct.bid(0), ct.bid(1)
    acc = ct.zeros((m, n), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
        x = ct.load(a, (row, step), (m, k), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, (step, column), (k, n), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(c, (row, column), acc.astype(c.dtype))


def _matmul(dtype: torch.dtype, rtol: float) -> Case:
    a, b = torch.randn(70, 45).to(dtype), torch.randn(45, 33).to(dtype)
    out = torch.float32 if dtype.itemsize == 1 else dtype
    expected = (a.double() @ b.double()).to(out)
    return Case(matmul, (3, 2), (a, b, blank(70, 33, dtype=out), 32, 32, 16), {2: expected}, rtol=rtol, atol=1e-4)


@case
def matmul_of_float32_with_ragged_edges() -> Case:
    return _matmul(torch.float32, 1e-5)


@case
def matmul_of_bfloat16() -> Case:
    return _matmul(torch.bfloat16, 1e-2)


@case
def matmul_of_float16() -> Case:
    return _matmul(torch.float16, 2e-3)


@case
def matmul_of_e4m3() -> Case:
    return _matmul(torch.float8_e4m3fn, 1e-5)


@ct.kernel
def small_mma(a, b, c, out, m: Int, n: Int, k: Int):
    x, y = ct.load(a, (0, 0), (m, k)), ct.load(b, (0, 0), (k, n))
    ct.store(out, (0, 0), ct.mma(x, y, ct.load(c, (0, 0), (m, n))))


@case
def mma_of_float64() -> Case:
    a, b, c = (torch.randn(16, 16, dtype=torch.float64) for _ in range(3))
    out = blank(16, 16, dtype=torch.float64)
    return Case(small_mma, (1,), (a, b, c, out, 16, 16, 16), {3: c + a @ b}, rtol=1e-14, atol=1e-14)


@case
def mma_of_float16_into_float16() -> Case:
    a, b, c = (torch.randn(16, 16).half() for _ in range(3))
    expected = (c.double() + a.double() @ b.double()).half()
    return Case(
        small_mma, (1,), (a, b, c, blank(16, 16, dtype=torch.float16), 16, 16, 16), {3: expected}, rtol=1e-3, atol=1e-3
    )


def _integer_mma(a: torch.Tensor, b: torch.Tensor) -> Case:
    c = torch.randint(-(2**31), 2**31 - 1, (16, 16), dtype=torch.int32)
    expected = c + (a.long() @ b.long()).int()
    return Case(small_mma, (1,), (a, b, c, torch.zeros(16, 16, dtype=torch.int32), 16, 16, 32), {3: expected})


@case
def mma_of_int8() -> Case:
    return _integer_mma(*(torch.randint(-128, 127, shape, dtype=torch.int8) for shape in ((16, 32), (32, 16))))


@case
def mma_of_uint8_and_int8() -> Case:
    a = torch.randint(0, 255, (16, 32), dtype=torch.uint8)
    return _integer_mma(a, torch.randint(-128, 127, (32, 16), dtype=torch.int8))


@ct.kernel
def tf32_mma(a, b, out, n: Int):
    x, y = ct.load(a, (0, 0), (n, n)).astype(ct.tfloat32), ct.load(b, (0, 0), (n, n)).astype(ct.tfloat32)
    ct.store(out, (0, 0), ct.mma(x, y, ct.zeros((n, n), ct.float32)))


@case
def mma_of_tfloat32_rounds_its_inputs() -> Case:
    a, b = torch.randn(16, 16), torch.randn(16, 16)

    def rounded(x: torch.Tensor) -> torch.Tensor:
        step = torch.exp2(torch.floor(torch.log2(x.abs().double())) - 10)
        return torch.round(x.double() / step) * step

    return Case(tf32_mma, (1,), (a, b, blank(16, 16), 16), {2: (rounded(a) @ rounded(b)).float()}, rtol=1e-5, atol=1e-6)


@ct.kernel
def batched_matmul(a, b, out):
    ct.store(out, (0, 0, 0), ct.matmul(ct.load(a, (0, 0, 0), (2, 8, 16)), ct.load(b, (0, 0), (16, 8))))


@case
def matmul_broadcasts_over_the_batch() -> Case:
    a, b = torch.randn(2, 8, 16), torch.randn(16, 8)
    expected = (a.double() @ b.double()).float()
    return Case(batched_matmul, (1,), (a, b, blank(2, 8, 8)), {2: expected}, rtol=1e-5, atol=1e-5)


@ct.kernel
def scaled_mma(a, a_scale, b, b_scale, out):
    x, y = ct.load(a, (0, 0), (16, 64)), ct.load(b, (0, 0), (64, 16))
    x_scale, y_scale = ct.load(a_scale, (0, 0), (16, 2)), ct.load(b_scale, (0, 0), (2, 16))
    ct.store(out, (0, 0), ct.mma_scaled(x, x_scale, y, y_scale, ct.ones((16, 16), ct.float32)))


@case
def mma_with_block_scales() -> Case:
    a, b = torch.randn(16, 64).to(torch.float8_e4m3fn), torch.randn(64, 16).to(torch.float8_e4m3fn)
    a_scale, b_scale = (torch.exp2(torch.randint(-3, 4, shape).float()) for shape in ((16, 2), (2, 16)))
    wide_a = a.double() * a_scale.double().repeat_interleave(32, 1)
    wide_b = b.double() * b_scale.double().repeat_interleave(32, 0)
    args = (a, a_scale.to(torch.float8_e8m0fnu), b, b_scale.to(torch.float8_e8m0fnu), blank(16, 16))
    return Case(scaled_mma, (1,), args, {4: (wide_a @ wide_b + 1).float()}, rtol=1e-5, atol=1e-4)
