"""Reductions and scans, built in and with the kernel's own function."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.cutile_cpu.cases import Case, blank, case

Int = ct.Constant[int]


@ct.kernel
def reduce_rows(x, total, product, least, greatest, m: Int, n: Int):
    tile = ct.load(x, (0, 0), (m, n))
    ct.store(total, (0,), ct.sum(tile, axis=1))
    ct.store(product, (0,), ct.prod(tile, axis=1))
    ct.store(least, (0,), ct.min(tile, axis=1))
    ct.store(greatest, (0,), ct.max(tile, axis=1))


def _reduce(x: torch.Tensor, rtol: float) -> Case:
    outs = [torch.zeros(x.shape[0], dtype=x.dtype) for _ in range(4)]
    wide = x.double() if x.is_floating_point() else x
    expected = {1: wide.sum(1), 2: wide.prod(1), 3: wide.amin(1), 4: wide.amax(1)}
    return Case(reduce_rows, (1,), (x, *outs, *x.shape), {k: v.to(x.dtype) for k, v in expected.items()}, rtol=rtol)


@case
def reductions_of_float32() -> Case:
    return _reduce(torch.rand(8, 64) + 0.5, 1e-5)


@case
def reductions_of_bfloat16() -> Case:
    return _reduce((torch.rand(8, 16) + 0.5).bfloat16(), 3e-2)


@case
def reductions_of_int32_wrap() -> Case:
    return _reduce(torch.randint(-(2**31), 2**31 - 1, (8, 32), dtype=torch.int32), 0.0)


@case
def reductions_of_uint8() -> Case:
    return _reduce(torch.randint(0, 255, (8, 32), dtype=torch.uint8), 0.0)


@ct.kernel
def extremes_of_unsigned(x, least, greatest, n: Int):
    tile = ct.load(x, (0,), (n,))
    ct.store(least, (0,), ct.min(tile))
    ct.store(greatest, (0,), ct.max(tile))


@case
def extremes_of_uint64() -> Case:
    import numpy as np

    x = np.array([2**63, 5, 2**64 - 1, 2**63 - 1], np.uint64)
    outs = torch.zeros(1, dtype=torch.uint64), torch.zeros(1, dtype=torch.uint64)
    expected = {1: torch.from_numpy(x.min(keepdims=True)), 2: torch.from_numpy(x.max(keepdims=True))}
    return Case(extremes_of_unsigned, (1,), (torch.from_numpy(x), *outs, 4), expected)


@ct.kernel
def reduce_with_nan(x, ignoring, propagating, position, n: Int):
    tile = ct.load(x, (0, 0), (4, n))
    ct.store(ignoring, (0,), ct.max(tile, axis=1))
    ct.store(propagating, (0,), ct.max(tile, axis=1, propagate_nan=True))
    ct.store(position, (0,), ct.argmax(tile, axis=1))


@case
def maximum_of_rows_with_nan() -> Case:
    nan = float("nan")
    x = torch.tensor([[1.0, nan, 3.0, 2.0], [nan] * 4, [4.0, 4.0, 1.0, 0.0], [nan, -1.0, -2.0, nan]])
    expected = {
        1: torch.tensor([3.0, nan, 4.0, -1.0]),
        2: torch.tensor([nan, nan, 4.0, nan]),
        3: torch.tensor([2, 0, 0, 1], dtype=torch.int32),
    }
    return Case(reduce_with_nan, (1,), (x, blank(4), blank(4), torch.zeros(4, dtype=torch.int32), 4), expected)


@ct.kernel
def positions(x, least, greatest, overall, m: Int, n: Int):
    tile = ct.load(x, (0, 0), (m, n))
    ct.store(least, (0, 0), ct.argmin(tile, axis=0, keepdims=True))
    ct.store(greatest, (0, 0), ct.argmax(tile, axis=1, keepdims=True))
    ct.store(overall, (0,), ct.argmax(tile))


@case
def positions_of_extremes() -> Case:
    x = torch.randn(8, 16)
    outs = [torch.zeros(shape, dtype=torch.int32) for shape in ((1, 16), (8, 1), (1,))]
    expected = {1: x.argmin(0, keepdim=True), 2: x.argmax(1, keepdim=True), 3: x.argmax().reshape(1)}
    return Case(positions, (1,), (x, *outs, 8, 16), {k: v.int() for k, v in expected.items()})


@ct.kernel
def reduce_all(x, out, m: Int, n: Int):
    ct.store(out, (0, 0), ct.sum(ct.load(x, (0, 0), (m, n)), keepdims=True))


@case
def sum_over_all_axes() -> Case:
    x = torch.randint(-9, 9, (8, 16)).float()
    return Case(reduce_all, (1,), (x, blank(1, 1), 8, 16), {1: x.sum().reshape(1, 1)})


@ct.kernel
def mean_and_variance(x, mean, spread, m: Int, n: Int):
    """Welford's update on triples (count, mean, sum of squares), with a captured scalar."""
    tile = ct.load(x, (0, 0), (m, n))
    half = ct.bid(0) + 0.5

    def combine(na, ma, sa, nb, mb, sb):
        count = na + nb
        delta = mb - ma
        return count, ma + delta * nb / count, sa + sb + 2 * half * delta * delta * na * nb / count

    one, zero = ct.ones((m, n), ct.float32), ct.zeros((m, n), ct.float32)
    _, average, squares = ct.reduce((one, tile, zero), 1, combine, (0.0, 0.0, 0.0))
    ct.store(mean, (0,), average)
    ct.store(spread, (0,), squares / n)


@case
def reduction_of_tuples_with_a_captured_value() -> Case:
    x = torch.randn(4, 32)
    expected = {1: x.double().mean(1).float(), 2: x.double().var(1, correction=0).float()}
    return Case(mean_and_variance, (1,), (x, blank(4), blank(4), 4, 32), expected, rtol=1e-5, atol=1e-6)


@ct.kernel
def scans(x, total, backward, product, n: Int):
    tile = ct.load(x, (0, 0), (4, n))
    ct.store(total, (0, 0), ct.cumsum(tile, axis=1))
    ct.store(backward, (0, 0), ct.cumsum(tile, axis=1, reverse=True))
    ct.store(product, (0, 0), ct.cumprod(tile, axis=0))


@case
def cumulative_sums_and_products() -> Case:
    x = torch.randint(-3, 4, (4, 32)).float()
    expected = {1: x.cumsum(1), 2: x.flip(1).cumsum(1).flip(1), 3: x.cumprod(0)}
    return Case(scans, (1,), (x, blank(4, 32), blank(4, 32), blank(4, 32), 32), expected)


@case
def cumulative_sums_of_uint32() -> Case:
    x = torch.randint(0, 2**32 - 1, (4, 16)).to(torch.uint32)
    wide = x.to(torch.int64)
    outs = [torch.zeros(4, 16, dtype=torch.uint32) for _ in range(3)]
    product = wide.clone()
    for row in range(1, 4):
        product[row] = (
            product[row - 1] * (wide[row] & 0xFFFF) + ((product[row - 1] * (wide[row] >> 16)) << 16)
        ) & 0xFFFF_FFFF
    expected = {1: wide.cumsum(1), 2: wide.flip(1).cumsum(1).flip(1), 3: product}
    return Case(scans, (1,), (x, *outs, 16), {k: (v & 0xFFFF_FFFF).to(torch.uint32) for k, v in expected.items()})


@ct.kernel
def recurrence(a, b, out, n: Int):
    """h[i] = a[i] * h[i-1] + b[i], as a scan of affine maps."""

    def compose(a1, b1, a2, b2):
        return a1 * a2, a2 * b1 + b2

    _, h = ct.scan((ct.load(a, (0,), (n,)), ct.load(b, (0,), (n,))), 0, compose, (1.0, 0.0))
    ct.store(out, (0,), h)


@case
def linear_recurrence() -> Case:
    a, b = torch.rand(32), torch.randn(32)
    h, expected = 0.0, []
    for i in range(32):
        h = a[i].item() * h + b[i].item()
        expected.append(h)
    return Case(recurrence, (1,), (a, b, blank(32), 32), {2: torch.tensor(expected)}, rtol=1e-5, atol=1e-6)
