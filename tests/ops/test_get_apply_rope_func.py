"""What `get_apply_rope_func` returns beside the formulas of Hugging Face's models."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.errors import ArgumentTypeError, ArgumentValueError, ShapeError, UnknownBackendError
from tilegym.ops import get_apply_rope_func

backends = pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check(function, formula, backend, size=32):
    """Outputs and gradients, for q and k as models have them: transposed views of (B, S, H, D)."""
    q, k = normal(2, 5, 4, size).transpose(1, 2), normal(2, 5, 2, size, seed=1).transpose(1, 2)
    results = []
    for call in (function, formula):
        leaves = [x.clone().requires_grad_() for x in (q, k)]
        outputs = call(*leaves)
        grad_outputs = [normal(*output.shape, seed=2) for output in outputs]
        results.append([*outputs, *torch.autograd.grad(outputs, leaves, grad_outputs)])
    torch.testing.assert_close(*results)
    with tilegym.trace() as calls:
        function(q, k)
    assert [call.backend for call in calls] == [backend]


def half_turn(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


@backends
@pytest.mark.parametrize("model", ["llama", "qwen2", "gemma3"])
def test_halves(model, backend):
    angles = normal(2, 5, 16).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    function = get_apply_rope_func(model, backend=backend)
    check(
        lambda q, k: function(q, k, cos, sin),
        lambda *given: [x * cos[:, None] + half_turn(x) * sin[:, None] for x in given],
        backend,
    )


@backends
def test_gpt_oss_has_tables_of_half_the_width(backend):
    angles = normal(2, 5, 16)
    cos, sin = angles.cos(), angles.sin()
    function = get_apply_rope_func("gpt-oss", backend=backend)

    def formula(*given):
        for x in given:
            a, b = x.chunk(2, dim=-1)
            yield torch.cat((a * cos[:, None] - b * sin[:, None], b * cos[:, None] + a * sin[:, None]), dim=-1)

    check(lambda q, k: function(q, k, cos, sin), lambda *given: [*formula(*given)], backend)


@backends
def test_qwen3_5_rotates_a_quarter(backend):
    angles = normal(2, 5, 4).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    function = get_apply_rope_func("qwen3_5", backend=backend)

    def formula(*given):
        for x in given:
            turned, rest = x[..., :8], x[..., 8:]
            yield torch.cat((turned * cos[:, None] + half_turn(turned) * sin[:, None], rest), dim=-1)

    check(lambda q, k: function(q, k, cos, sin), lambda *given: [*formula(*given)], backend)


@backends
@pytest.mark.parametrize("batches", [(), (1,), (2,)])
def test_deepseek_multiplies_complex_pairs(batches, backend):
    angles = normal(*batches, 5, 16)
    freqs_cis = torch.polar(torch.ones_like(angles), angles)
    function = get_apply_rope_func("deepseek", backend=backend)

    def formula(*given):
        for x in given:
            numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], 16, 2))
            yield torch.view_as_real(numbers * (freqs_cis[:, None] if batches else freqs_cis)).flatten(3)

    check(lambda q, k: function(q, k, freqs_cis), lambda *given: [*formula(*given)], backend)


def test_positions_and_heads_behind_them():
    angles = normal(100, 16).repeat(1, 2)
    q, k, ids = normal(2, 5, 4, 32), normal(2, 5, 1, 32), torch.tensor([[99, 0, 7, 7, 1]])
    found = get_apply_rope_func()(q, k, angles.cos(), angles.sin(), ids, 2)
    cos, sin = angles[ids].cos()[:, :, None], angles[ids].sin()[:, :, None]
    torch.testing.assert_close(found, tuple(x * cos + half_turn(x) * sin for x in (q, k)))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": torch.ones(4, 6, 8)}, ShapeError, r"q must be of shape \(B, H, S, D\) with even D, got \(4, 6, 8\)"),
        ({"k": torch.ones(1, 1, 6, 7)}, ShapeError, r"k must be of shape .* got \(1, 1, 6, 7\)"),
        ({"freqs_cis": torch.ones(6, 4)}, ArgumentTypeError, "freqs_cis must be complex, got torch.float32"),
        ({"freqs_cis": torch.ones(12, 2) * 1j}, ShapeError, r"freqs_cis must be of shape \(6, 4\), .* got \(12, 2\)"),
    ],
)
def test_deepseek_refuses(change, error, message):
    good = {"q": torch.ones(1, 2, 6, 8), "k": torch.ones(1, 1, 6, 8), "freqs_cis": torch.ones(6, 4) * 1j}
    with pytest.raises(error, match=message):
        get_apply_rope_func("deepseek")(**good | change)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"model": "lama"}, ArgumentValueError, "model must be one of deepseek, gemma3, .* got 'lama'"),
        ({"backend": "nobody"}, UnknownBackendError, "no installed distribution provides a backend 'nobody'"),
    ],
)
def test_refuses(given, error, message):
    with pytest.raises(error, match=message):
        get_apply_rope_func(**given)
