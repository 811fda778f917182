"""What a contract's samples do not force: each strategy on small shapes, residuals, and views instead of copies."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

import tilegym
from tests.cutile.test_host_code import OnlyAllocations
from tilegym.contract import Sample, TensorSpec
from tilegym.testing import assert_accurate, load_implementation, materialize
from tilegym_cutile.ops.apply_rope_base import apply_rope_base
from tilegym_cutile.ops.rms_norm import rms_norm, rms_norm_backward, rms_norm_forward
from tilegym_cutile.ops.silu_and_mul import silu_and_mul, silu_and_mul_backward
from tilegym_cutile.ops.softmax import softmax, softmax_backward
from tilegym_cutile.runtime import recording
from tilegym_cutile.tuning import reread

everywhere = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


def samples(op, *names):
    contract = getattr(tilegym.ops, op).contract
    found = [sample for sample in contract.samples() if sample.name in names]
    assert len(found) == len(names)
    return [pytest.param(contract, sample, id=sample.name) for sample in found]


HEADS, ANGLES = TensorSpec(shape=(2, 8, 8, 32)), TensorSpec(shape=(8, 32))
NORMED = {"normalized_shape": (4096,), "weight": TensorSpec(shape=(4096,)), "eps": 1e-6}


@pytest.fixture
def grids_of_one_more(monkeypatch):
    """As they are where no grid holds exactly as many blocks as there are tiles."""
    for module in ("elementwise", "norms", "ops.apply_rope_base", "ops.dropout", "ops.softmax"):
        found = importlib.import_module(f"tilegym_cutile.{module}")
        monkeypatch.setattr(found, "grid", lambda blocks: ((1, blocks + 1, 1), True))
    reread()
    yield
    monkeypatch.undo()
    reread()


@everywhere
@pytest.mark.usefixtures("grids_of_one_more")
@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("softmax", {"x": TensorSpec(shape=(8, 4096))}),
        ("rms_norm", {"input": TensorSpec(shape=(8, 4096)), **NORMED}),
        ("gelu", {"input": TensorSpec(shape=(8, 4096))}),
        ("silu_and_mul", {"input": TensorSpec(shape=(8, 8192))}),
        ("dropout", {"x": TensorSpec(shape=(8 * 4096,)), "seed": 5, "p": 0.4}),
        (
            "apply_rope_base",
            {"q": HEADS, "k": HEADS, "cos": ANGLES, "sin": ANGLES},
        ),
    ],
)
def test_a_block_too_many_writes_nothing(op, args, device):
    sample = Sample(name="whole tiles", args=args)
    implementation = load_implementation(op, "cutile")
    for dtype in (torch.float32, torch.bfloat16):
        made = materialize(sample, dtype=dtype, device=device)
        assert_accurate(implementation.contract, made, implementation(made))


@everywhere
@pytest.mark.usefixtures("grids_of_one_more")
def test_a_block_too_many_of_a_backward_writes_nothing(device):
    y = torch.rand(8, 4096, device=device)
    dx = softmax_backward(y, y)
    assert_close(dx, y.double() * (y.double() - y.double().square().sum(-1, keepdim=True)), 4096)


@everywhere
@dtypes
@pytest.mark.parametrize(
    ("contract", "sample"), samples("softmax", "x(5, 257)", "transposed-4d", "special(8, 5000)", "large")
)
def test_softmax_in_chunks(contract, sample, dtype, device):
    args = materialize(sample, dtype=dtype, device=device)
    assert_accurate(contract, args, softmax(args["x"], use_chunked=True))


@everywhere
@pytest.mark.parametrize("n", [2**15, 33001, 50000])
def test_softmax_of_long_rows(n, device):
    """In several groups, alone or with a rest, of single elements or vectors; more rows than a CPU's blocks."""
    x = torch.randn(11, n, device=device, generator=torch.Generator(device).manual_seed(n))
    x[::2, -1] = 9.0
    y = softmax(x)
    assert_accurate(tilegym.ops.softmax.contract, {"x": x}, y)
    weights, gradient = y.double(), x.double()  # what the last column adds to the sum shows in all others
    dx = softmax_backward(x, y)
    assert_close(dx, weights * (gradient - (gradient * weights).sum(-1, keepdim=True)), n)


@everywhere
def test_softmax_lanes_that_see_only_minus_infinity(device):
    """Of 2048 lanes all but one hold nothing but -inf; and a row where the lowest finite number is the maximum."""
    x = torch.full((3, 5000), -math.inf, device=device)
    x[0, 4321] = 7.0
    x[1, ::2] = torch.finfo(torch.float32).min
    x[2, 17:19] = torch.tensor([3e38, -3e38])
    assert_accurate(tilegym.ops.softmax.contract, {"x": x}, softmax(x, use_chunked=True))


@everywhere
@dtypes
@pytest.mark.parametrize(
    ("contract", "sample"), samples("rms_norm", "input(5, 257)", "transposed-4d", "bias", "two-dims")
)
def test_rms_norm_in_chunks(contract, sample, dtype, device):
    args = materialize(sample, dtype=dtype, device=device)
    assert_accurate(contract, args, rms_norm(**args, mode="multi_wave_reload"))


@everywhere
def test_rms_norm_of_columns_that_do_not_merge(device):
    x = torch.randn(4, 6, 4, 5).contiguous(memory_format=torch.channels_last).to(device)
    weight, bias = torch.randn(6, 4, 5).to(device), torch.randn(5, 4, 6).to(device).permute(2, 1, 0)
    args = {"input": x, "normalized_shape": (6, 4, 5), "weight": weight, "eps": 1e-6, "bias": bias}
    for mode in (None, "multi_wave_reload"):
        assert_accurate(tilegym.ops.rms_norm.contract, args, rms_norm(**args, mode=mode))


@everywhere
@pytest.mark.parametrize("mode", [None, "multi_wave_reload"])
@pytest.mark.parametrize("shape", [(13, 33), (3, 5, 20)])
def test_rms_norm_keeps_rstd_for_the_backward(shape, mode, device):
    x = torch.randn(shape, dtype=torch.bfloat16).to(device)
    weight = torch.ones(shape[-1:], dtype=torch.bfloat16, device=device)
    y, rstd = rms_norm_forward(x, shape[-1:], weight, 1e-3, mode=mode)
    assert torch.equal(y, rms_norm(x, shape[-1:], weight, 1e-3, mode=mode))
    assert (rstd.shape, rstd.dtype) == (shape[:-1], torch.float32)
    torch.testing.assert_close(rstd.double(), (x.double().square().mean(-1) + 1e-3).rsqrt(), rtol=1e-6, atol=0)


@everywhere
def test_silu_and_mul_writes_out_of_any_layout(device):
    x = torch.randn(3, 4, 2 * 37).to(device)
    wide = torch.full((4, 3, 2 * 37), math.nan, device=device)
    out = wide.transpose(0, 1)[..., ::2]
    assert silu_and_mul(x, out) is out
    assert torch.equal(out, silu_and_mul(x))
    assert wide[..., 1::2].isnan().all()


# -- backward, against float64 autograd: relative norm of the error, bounded as the contracts bound it


def assert_close(actual, expected, terms):
    bound = {torch.float16: 2e-3, torch.bfloat16: 8e-3}.get(actual.dtype, 1e-6 * math.sqrt(terms))
    assert actual.shape == expected.shape
    assert (actual.double() - expected).norm() <= bound * expected.norm()


def laid_out(shape, dtype, layout, device):
    if layout == "expanded":
        return torch.randn(shape[-1], dtype=dtype).to(device).expand(shape)
    values = torch.randn(shape, dtype=dtype).to(device)
    return values.transpose(0, -1).contiguous().transpose(0, -1) if layout == "transposed" else values


layouts = pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded"])


@everywhere
@dtypes
@layouts
@pytest.mark.parametrize("shape", [(13, 33), (2, 3, 257), (2, 20000)])
def test_softmax_backward(shape, layout, dtype, device):
    y = softmax(laid_out(shape, dtype, layout, device))
    dy = laid_out(shape, dtype, layout, device)
    weights, gradient = y.double(), dy.double()
    expected = weights * (gradient - (gradient * weights).sum(-1, keepdim=True))
    dx = softmax_backward(dy, y)
    assert dx.dtype == dtype
    assert dx.is_contiguous()
    assert_close(dx, expected, shape[-1])


@everywhere
@dtypes
@layouts
@pytest.mark.parametrize("shape", [(13, 33), (2, 3, 257), (2, 20000)])
def test_silu_and_mul_backward(shape, layout, dtype, device):
    x = laid_out((*shape[:-1], 2 * shape[-1]), dtype, layout, device)
    dy = laid_out(shape, dtype, layout, device)
    leaf = x.double().requires_grad_()
    gate, up = leaf.chunk(2, -1)
    (F.silu(gate) * up).backward(dy.double())
    dx = silu_and_mul_backward(dy, x)
    assert dx.dtype == dtype
    assert dx.is_contiguous()
    assert_close(dx, leaf.grad, 1)


@everywhere
@layouts
@pytest.mark.parametrize(
    ("shape", "offset", "dtype"),
    [
        *[((13, 33), 0.0, dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)],
        ((2, 3, 257), 1.0, torch.bfloat16),
        pytest.param((9, 8200), 0.0, torch.float32, id="in chunks"),
    ],
)
def test_rms_norm_backward(shape, offset, dtype, layout, device):
    n = shape[-1]
    x, dy = laid_out(shape, dtype, layout, device), laid_out(shape, dtype, layout, device)
    weight, bias = torch.randn(n).to(device), torch.randn(n, dtype=dtype).to(device)
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    normed = leaves[0] * (leaves[0].square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    (normed * (offset + leaves[1]) + leaves[2]).backward(dy.double())
    _, rstd = rms_norm_forward(x, (n,), weight, 1e-6, bias, offset=offset)
    gradients = rms_norm_backward(dy, x, weight, bias, rstd, offset=offset)
    again = rms_norm_backward(dy, x, weight, bias, rstd, offset=offset)
    for gradient, repeated, tensor, leaf in zip(gradients, again, (x, weight, bias), leaves, strict=True):
        assert gradient.dtype == tensor.dtype
        assert torch.equal(gradient, repeated)
        assert_close(gradient, leaf.grad, x.numel())


@everywhere
@pytest.mark.parametrize("n", [33, 8200])
def test_rms_norm_backward_computes_just_what_is_needed(n, device):
    x, dy = torch.randn(5, n).to(device), torch.randn(5, n).to(device)
    weight, bias = torch.randn(n).to(device), torch.randn(n).to(device)
    _, rstd = rms_norm_forward(x, (n,), weight, 1e-6, bias)
    whole = rms_norm_backward(dy, x, weight, bias, rstd)
    for needs in [(True, False, False), (False, True, False), (False, False, True), (False, False, False)]:
        part = rms_norm_backward(dy, x, weight, bias, rstd, needs=needs)
        for needed, gradient, expected in zip(needs, part, whole, strict=True):
            assert torch.equal(gradient, expected) if needed else gradient is None


@everywhere
def test_rms_norm_backward_without_weight_is_that_of_ones(device):
    x, dy, ones = torch.randn(5, 33).to(device), torch.randn(5, 33).to(device), torch.ones(33, device=device)
    _, rstd = rms_norm_forward(x, (33,), None, 1e-6)
    dx, dweight, dbias = rms_norm_backward(dy, x, None, None, rstd, offset=0.5)
    assert torch.equal(dx, rms_norm_backward(dy, x, ones, None, rstd, offset=0.5)[0])
    assert (dweight, dbias) == (None, None)


@everywhere
@pytest.mark.parametrize("shape", [(0, 8), (3, 0)])
def test_backward_of_nothing(shape, device):
    empty, weight = torch.empty(shape, device=device), torch.ones(shape[1:], device=device)
    assert softmax_backward(empty, empty).shape == shape
    assert silu_and_mul_backward(empty[:, : shape[1] // 2], empty).shape == shape
    dx, dweight, dbias = rms_norm_backward(empty, empty, weight, weight, torch.empty(shape[:1], device=device))
    assert dx.shape == shape
    assert torch.equal(dweight, torch.zeros_like(weight))
    assert torch.equal(dbias, torch.zeros_like(weight))


# -- host code


@pytest.mark.parametrize("columns", [33, 20000])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded"])
def test_host_code_neither_computes_nor_copies(layout, columns):
    shape = (6, 2, columns)
    x, dy = (laid_out(shape, torch.float32, layout, "meta") for _ in range(2))
    half = laid_out((6, 2, columns // 2), torch.float32, layout, "meta")
    x_even = x[..., : columns // 2 * 2]
    weight = torch.empty(2 * columns, device="meta")[::2]
    with recording() as launches, OnlyAllocations():
        y = softmax(x)
        softmax_backward(dy, y)
        silu_and_mul(x_even, half)
        silu_and_mul_backward(half, x_even)
        _, rstd = rms_norm_forward(x, (columns,), weight, 1e-6, weight)
        rms_norm_backward(dy, x, weight, weight, rstd)
    assert len(launches) == {33: 7, 20000: 8}[columns]


def test_rope_of_more_heads_than_a_grid_has_blocks():
    q, k = torch.empty(2, 600_000, 3, 8, device="meta"), torch.empty(2, 1, 3, 8, device="meta")
    cos = torch.empty(3, 8, device="meta")
    with recording() as launches:
        apply_rope_base(q, k, cos, cos, None, 1)
    assert max(launches[0].grid[1:]) <= 65535
