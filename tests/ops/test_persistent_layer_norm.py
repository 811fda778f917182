"""persistent_layer_norm: what it returns beside the norm, and statistics that are given."""

from __future__ import annotations

import pytest
import torch

from tilegym.errors import ArgumentValueError, DtypeError, GradientError, ShapeError
from tilegym.ops import layer_norm_legacy, persistent_layer_norm

EPS = 1e-3
backends = pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, WEIGHT, BIAS = normal(2, 3, 40), normal(40, seed=1), normal(40, seed=2)


@backends
def test_norm_and_statistics(backend):
    y, mean, rstd, block, warps = persistent_layer_norm(X, (40,), WEIGHT, BIAS, EPS, backend=backend)
    torch.testing.assert_close(y, layer_norm_legacy(X, (40,), WEIGHT, BIAS, EPS, backend="torch"))
    torch.testing.assert_close(mean, X.mean(-1))
    torch.testing.assert_close(rstd, (X.var(-1, correction=0) + EPS).rsqrt())
    assert (block, warps) == (64, 8)


@pytest.mark.parametrize(
    ("shape", "dims", "block"),
    [((2, 1), 1, 1), ((2, 64), 1, 64), ((2, 65), 1, 128), ((2, 5, 9), 2, 64), ((2, 0), 1, 1)],
)
def test_block_is_the_next_power_of_two(shape, dims, block):
    assert persistent_layer_norm(torch.ones(shape), shape[-dims:], None, None, EPS)[3:] == (block, 8)


@backends
def test_given_statistics_are_used_as_they_are(backend):
    mean, rstd = normal(2, 3, seed=3), normal(2, 3, seed=4)
    y, *same = persistent_layer_norm(X, (40,), WEIGHT, BIAS, EPS, mean=mean, rstd=rstd, backend=backend)
    torch.testing.assert_close(y, (X - mean[..., None]) * rstd[..., None] * WEIGHT + BIAS)
    assert all(torch.equal(*pair) for pair in zip(same[:2], (mean, rstd), strict=True))


@backends
@pytest.mark.parametrize("given", [False, True])
def test_the_norm_has_a_gradient_and_the_statistics_have_none(given, backend):
    leaves = [tensor.clone().requires_grad_() for tensor in (X, WEIGHT, BIAS)]
    statistics = {"mean": normal(2, 3, seed=3), "rstd": normal(2, 3, seed=4)} if given else {}
    y, mean, rstd, _, _ = persistent_layer_norm(leaves[0], (40,), *leaves[1:], EPS, **statistics, backend=backend)
    assert (y.requires_grad, mean.requires_grad, rstd.requires_grad) == (True, False, False)
    if given:
        expected = (leaves[0] - mean[..., None]) * rstd[..., None] * leaves[1] + leaves[2]
    else:
        expected = torch.nn.functional.layer_norm(leaves[0], (40,), *leaves[1:], EPS)
    found, wanted = (torch.autograd.grad(one, leaves, normal(2, 3, 40, seed=5)) for one in (y, expected))
    torch.testing.assert_close(found, wanted)


def test_compiled_it_returns_the_same():
    def call(x):
        return persistent_layer_norm(x, (40,), WEIGHT, BIAS, EPS, backend="cutile-cpu")

    for dynamic in (False, True):
        found = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=dynamic)(X)
        torch.testing.assert_close(found[:3], call(X)[:3])
        assert found[3:] == (64, 8)


@pytest.mark.parametrize(
    ("statistics", "error", "message"),
    [
        ({"mean": torch.ones(2, 3)}, ArgumentValueError, "mean and rstd must be given together"),
        ({"rstd": torch.ones(2, 3)}, ArgumentValueError, "mean and rstd must be given together"),
        ({"mean": torch.ones(6), "rstd": torch.ones(6)}, ShapeError, r"mean must have shape \(2, 3\), got \(6,\)"),
        ({"mean": torch.ones(2, 3), "rstd": torch.ones(2, 3).half()}, DtypeError, "rstd must be one of float32"),
    ],
)
def test_refused(statistics, error, message):
    with pytest.raises(error, match=f"persistent_layer_norm: {message}"):
        persistent_layer_norm(X, (40,), WEIGHT, BIAS, EPS, **statistics)


@backends
@pytest.mark.parametrize("name", ["mean", "rstd"])
def test_given_statistics_have_no_gradient(name, backend):
    statistics = {"mean": torch.ones(2, 3), "rstd": torch.ones(2, 3)}
    statistics[name].requires_grad_()
    with pytest.raises(GradientError, match=f"persistent_layer_norm: {name} requires a gradient, and has none here"):
        persistent_layer_norm(X, (40,), WEIGHT, BIAS, EPS, **statistics, backend=backend)
    with torch.no_grad():
        assert not persistent_layer_norm(X, (40,), WEIGHT, BIAS, EPS, **statistics, backend=backend)[0].requires_grad
