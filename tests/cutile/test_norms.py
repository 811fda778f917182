"""What both norms share, on small shapes: statistics, chunks, sums for weight and bias, and a large mean."""

from __future__ import annotations

import math

import pytest
import torch

from tilegym_cutile import norms, norms_backward
from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.runtime import ARCHITECTURES, recording

everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
chunked = pytest.mark.parametrize("chunked", [False, True])
centered = pytest.mark.parametrize("centered", [False, True])
EPS = 1e-3


def normal(*shape, mean=0.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)) + mean


def reference(x, weight, bias, offset, *, centered):
    """The norm of float64 tensors, its mean and 1 / its deviation."""
    mean = x.mean(-1, keepdim=True) if centered else torch.zeros_like(x[..., :1])
    rstd = ((x - mean).square().mean(-1, keepdim=True) + EPS).rsqrt()
    return (x - mean) * rstd * (offset + weight) + bias, mean[..., 0], rstd[..., 0]


def norm_error(actual, expected):
    return ((actual.double() - expected).norm() / expected.norm()).item()


@everywhere
@centered
@chunked
@pytest.mark.parametrize("shape", [(13, 33), (2, 3, 257), (2, 9000)])
@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_norm_and_statistics(shape, mean, chunked, centered, device):
    """Though each float32 near 1000 is 3e-5 of a deviation off: differences from a row's first element are exact."""
    x, weight, bias = normal(*shape, mean=mean).to(device), normal(shape[-1]).to(device), normal(shape[-1]).to(device)
    means, rstds = norms.empty_statistic(x, 1), norms.empty_statistic(x, 1)
    y = norms.normalize(
        x, 1, weight, bias, EPS, 0.5, centered=centered, chunked=chunked, mean=means if centered else None, rstd=rstds
    )
    expected, mean, rstd = reference(x.double(), weight.double(), bias.double(), 0.5, centered=centered)
    assert norm_error(y, expected) < 1e-6
    torch.testing.assert_close(rstds.double(), rstd, rtol=1e-6, atol=0)
    if centered:
        torch.testing.assert_close(means.double(), mean, rtol=1e-7, atol=1e-6)


@everywhere
@chunked
def test_a_row_of_one_value_has_no_deviation(chunked, device):
    x = torch.full((2, 700), 1e4, device=device)
    rstd = norms.empty_statistic(x, 1)
    y = norms.normalize(x, 1, None, None, EPS, 0.0, centered=True, chunked=chunked, rstd=rstd)
    assert torch.equal(y, torch.zeros_like(x))
    torch.testing.assert_close(rstd, torch.full((2,), EPS**-0.5, device=device), rtol=1e-6, atol=0)


@everywhere
@pytest.mark.parametrize("special", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("at", [0, 400])
@chunked
def test_layer_norm_of_what_is_not_finite_is_nan(at, special, chunked, device):
    x = normal(2, 700).to(device)
    x[0, at] = special
    y = norms.normalize(x, 1, None, None, EPS, 0.0, centered=True, chunked=chunked)
    assert y[0].isnan().all()
    assert y[1].isfinite().all()


@everywhere
@centered
@pytest.mark.parametrize("shape", [(300, 33), (2, 3, 257), (40, 4, 20), (5, 8200)])
def test_gradients(shape, centered, device):
    x, dy = normal(*shape, mean=3.0).to(device), normal(*shape).flip(-1).to(device)
    weight, bias = normal(shape[-1]).to(device), normal(shape[-1]).to(device)
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    y, mean, rstd = reference(*leaves, 0.5, centered=centered)
    expected = torch.autograd.grad(y, leaves, dy.double())
    saved = mean.detach().float() if centered else None, rstd.detach().float()
    found = norms_backward.gradients(dy, x, weight, bias, *saved, 0.5, (True, True, True))
    for gradient, one in zip(found, expected, strict=True):
        assert gradient.shape == one.shape
        assert norm_error(gradient, one) < 2e-6
    for index in range(3):
        needs = tuple(at == index for at in range(3))
        part = norms_backward.gradients(dy, x, weight, bias, *saved, 0.5, needs)
        assert [one is not None for one in part] == [*needs]
        assert torch.equal(part[index], found[index])


@everywhere
@centered
@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [(7, 30, 5), (7, 30, 40)])
def test_gradients_of_columns_that_do_not_merge(shape, fixed, centered, device):
    """Both whole rows and chunks of them, whose elements lie column by column in memory."""
    x, dy = normal(*shape).to(device).mT, normal(*shape).flip(0).to(device).mT
    weight, bias = normal(*x.shape[1:]).to(device), normal(*x.shape[1:]).to(device)
    leaves = [tensor.double().flatten(-2).requires_grad_() for tensor in (x, weight, bias)]
    y, mean, rstd = reference(*leaves, 0.0, centered=centered)
    if fixed:
        mean, rstd = mean.detach(), rstd.detach()
        y = (leaves[0] - mean[:, None]) * rstd[:, None] * leaves[1] + leaves[2]
    expected = torch.autograd.grad(y, leaves, dy.double().flatten(-2))
    saved = mean.detach().float() if centered else None, rstd.detach().float()
    found = norms_backward.gradients(dy, x, weight, bias, *saved, 0.0, (True, True, True), fixed=fixed)
    for gradient, one in zip(found, expected, strict=True):
        assert norm_error(gradient.flatten(-2), one) < 2e-6


@pytest.mark.parametrize(("m", "n", "blocks"), [(100_000, 512, 528), (100_000, 4096, 264), (10, 4096, 10)])
def test_every_sm_has_its_blocks_while_rows_last(m, n, blocks):
    x, row = torch.empty(m, n, device="meta"), torch.empty(n, device="meta")
    with recording(arch="sm_90") as launches:
        norms_backward.gradients(x, x, row, row, None, torch.empty(m, device="meta"), 0.0, (True, True, True))
    assert launches[0].grid == (blocks, 1)


@pytest.mark.parametrize("n", [33, 8192, 16384])
def test_a_row_is_read_once_while_it_fits_in_registers(n):
    x = torch.empty(64, n, device="meta")
    with recording(arch="sm_90") as launches:
        norms.normalize(x, 1, None, None, EPS, 0.0, centered=True)
        norms.normalize(torch.empty(64, 20_000, device="meta"), 1, None, None, EPS, 0.0, centered=True)
    names = [launch.kernel._annotated_function.pyfunc.__name__ for launch in launches]
    assert names == ["norm_rows", "norm_chunks"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@centered
def test_rows_of_several_dimensions_do_not_spill(arch, centered):
    x = torch.empty(65536, 64, 32, dtype=torch.bfloat16, device="meta").transpose(1, 2)
    parameter = torch.empty(32, 64, dtype=torch.bfloat16, device="meta")
    with recording(arch=arch) as launches:
        norms.normalize(x, 2, parameter, parameter if centered else None, EPS, 0.0, centered=centered)
    (launch,) = launches
    case = Case(op="layer_norm_legacy", sample="two dimensions", dtype=x.dtype, launch=launch)
    assert case.kernel == "norm_rows"
    assert compile_case(case, arch).usage.stack == 0
