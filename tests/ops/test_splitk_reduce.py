"""splitk_reduce: splits that saw no key, where it writes, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from tilegym.errors import ArgumentTypeError, ArgumentValueError, DtypeError, GradientError, ShapeError
from tilegym.ops import splitk_reduce

backends = pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])


def arguments(splits=5):
    generator = torch.Generator().manual_seed(0)
    partials = torch.randn(2, 3, splits, 24, generator=generator)
    return partials, torch.randn(2, 3, splits, generator=generator), torch.full((2, 3, 24), math.nan), 100


@backends
def test_it_is_the_mean_that_the_sums_of_exponentials_weigh(backend):
    partials, lse, out, keys = arguments()
    assert splitk_reduce(partials, lse, out, keys, backend=backend) is out
    weights = torch.softmax(lse.double() * math.log(2), -1)
    torch.testing.assert_close(out, (weights[..., None] * partials).sum(2).float())


@backends
def test_a_split_without_keys_counts_for_nothing_whatever_it_holds(backend):
    partials, lse, out, keys = arguments()
    lse[:, :, 1::2], partials[:, :, 1::2] = -math.inf, math.nan
    splitk_reduce(partials, lse, out, keys, backend=backend)
    expected = torch.empty_like(out)
    splitk_reduce(partials[:, :, ::2], lse[:, :, ::2], expected, keys, backend="torch")
    torch.testing.assert_close(out, expected)


@backends
def test_without_keys_in_any_split_the_result_is_0(backend):
    for splits in (0, 1, 5):
        partials, lse, out, _ = arguments(splits)
        splitk_reduce(partials.fill_(math.nan), lse.fill_(-math.inf), out, 0, backend=backend)
        assert torch.equal(out, torch.zeros(2, 3, 24))


@backends
def test_sums_of_any_size_and_a_result_of_another_dtype(backend):
    for level in (-1e30, -7e4, 7e4, 1e30):
        partials, lse, _, keys = arguments()
        out = torch.empty(3, 2, 24, dtype=torch.bfloat16).transpose(0, 1)
        splitk_reduce(partials, torch.full_like(lse, level), out, keys, backend=backend)
        torch.testing.assert_close(out, partials.mean(2).bfloat16())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"attn_splitk_out": torch.ones(2, 3, 24)}, ShapeError, r"attn_splitk_out must have shape \(B, H, splits, D\)"),
        ({"lse_splitk_out": torch.ones(2, 3, 4)}, ShapeError, r"lse_splitk_out must have shape \(2, 3, 5\)"),
        ({"lse_splitk_out": torch.ones(2, 3, 5).half()}, DtypeError, "lse_splitk_out must be one of float32"),
        ({"attn_out": torch.ones(2, 3, 1, 24)}, ShapeError, r"attn_out must have shape \(2, 3, 24\)"),
        ({"attn_out": torch.ones(24).expand(2, 3, 24)}, ArgumentValueError, "attn_out must not be expanded"),
        ({"S_kv": 1.5}, ArgumentTypeError, "S_kv must be an int, got float"),
        ({"S_kv": True}, ArgumentTypeError, "S_kv must be an int, got bool"),
        ({"S_kv": -1}, ArgumentValueError, "S_kv must not be negative, got -1"),
    ],
)
def test_refused(change, error, message):
    given = dict(zip(("attn_splitk_out", "lse_splitk_out", "attn_out", "S_kv"), arguments(), strict=True))
    with pytest.raises(error, match=f"splitk_reduce: {message}"):
        splitk_reduce(**given | change)


def test_a_gradient_is_refused_by_kernels():
    partials, *rest = arguments()
    with pytest.raises((GradientError, NotImplementedError), match="requires a gradient"):
        splitk_reduce(partials.requires_grad_(), *rest, backend="cutile-cpu")


def test_compiled_it_writes_too():
    def call(partials, lse, out):
        return splitk_reduce(partials, lse, out, 100, backend="cutile-cpu")

    partials, lse, out, _ = arguments()
    expected = call(partials, lse, out.clone())
    found = torch.compile(call, backend="aot_eager", fullgraph=True)(partials, lse, out)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(out, expected)
