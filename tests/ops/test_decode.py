"""The decode ops beside their prefill, what they make of odd numbers, and that no result depends on how keys are split.

The conformance suites run the contracts' samples through every backend.
"""

from __future__ import annotations

import math

import pytest
import torch

from tilegym.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from tilegym.ops import (
    attention_sink,
    attention_sink_decode,
    fmha_decode,
    gemma_attention,
    gemma_attention_decode,
    mla_decoding,
    mla_decoding_split_kv,
)
from tilegym.testing import assert_accurate

backends = pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attended(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True).float()


def latent(heads, keys, *, batch=2, size=32, pe=16):
    shapes = (batch, heads, size), (batch, heads, pe), (batch, keys, size), (batch, keys, pe)
    return [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]


@backends
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (3, 1), (14, 2), (64, 1)])
def test_each_group_of_heads_has_its_keys(heads, kv_heads, backend):
    q, k, v = normal(2, heads, 1, 16), normal(2, kv_heads, 37, 16, seed=1), normal(2, kv_heads, 37, 16, seed=2)
    torch.testing.assert_close(fmha_decode(q, k, v, None, backend=backend), attended(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_result_depends_on_how_keys_are_split(dtype):
    q, k, v = (normal(1, heads, keys, 24, seed=keys).to(dtype) for heads, keys in ((2, 1), (1, 300), (1, 300)))
    arguments = {"q": q, "k": k, "v": v, "sm_scale": None}
    for kv_len_per_split in (None, 1, 100, 299, 300, 10_000):
        found = fmha_decode(**arguments, kv_len_per_split=kv_len_per_split, backend="cutile-cpu")
        assert_accurate(fmha_decode.contract, arguments, found)


@backends
def test_finite_scores_of_any_size_are_no_mask(backend):
    """All of a query's scores are -5e4, or 5e4: so all weights are the same."""
    v = normal(1, 1, 200, 8)
    for sign in (-1.0, 1.0):
        q, k = torch.full((1, 2, 1, 8), 100.0), torch.full((1, 1, 200, 8), sign * 62.5)
        found = fmha_decode(q, k, v, 1.0, kv_len_per_split=64, backend=backend)
        torch.testing.assert_close(found, v.mean(2, keepdim=True).expand(1, 2, 1, 8))


@backends
def test_gemma_decode_is_the_last_row_of_its_prefill(backend):
    q, k, v = normal(1, 4, 50, 16), normal(1, 2, 50, 16, seed=1), normal(1, 2, 50, 16, seed=2)
    for window, cap in [(0, None), (1, None), (49, 5.0), (1000, 1e-30), (7, 1e30), (7, 1e38), (7, math.inf)]:
        found = gemma_attention_decode(q[:, :, -1:], k, v, None, window, cap, backend=backend)
        expected = gemma_attention(q, k, v, None, window, cap, backend="torch")[:, :, -1:]
        torch.testing.assert_close(found, expected)


@backends
@pytest.mark.parametrize("cap", [1e5, 1e20])
def test_a_soft_cap_far_beyond_all_scores_changes_none(cap, backend):
    q, k = normal(1, 2, 1, 64).bfloat16(), normal(1, 2, 40, 64, seed=1).bfloat16()
    found = gemma_attention_decode(q, k, k, soft_cap=cap, backend=backend)
    torch.testing.assert_close(found, gemma_attention_decode(q, k, k, backend="torch"), atol=0.01, rtol=0.01)


@backends
def test_sink_decode_is_a_row_of_its_prefill(backend):
    query, key, value, sinks = normal(1, 40, 2, 3, 16), normal(1, 40, 2, 16), normal(1, 40, 2, 16), normal(6)
    for window in (None, 1, 5):
        rows = attention_sink(query, key, value, sinks, sliding_window=window, backend="torch")
        for position in (0, 39):
            one, expected = query[:, position : position + 1], rows[:, position : position + 1]
            for start in (position, torch.tensor(position, dtype=torch.int32)):
                found = attention_sink_decode(one, key, value, sinks, 0.125, window, start, backend=backend)
                torch.testing.assert_close(found, expected)


@backends
@pytest.mark.parametrize("start", [-5, -(2**40), 2**40, 45])
def test_without_a_visible_key_the_result_is_0(start, backend):
    query, key, value, sinks = normal(1, 1, 2, 3, 16), normal(1, 40, 2, 16), normal(1, 40, 2, 16), normal(6)
    for position in (start, torch.tensor([start])):
        found = attention_sink_decode(query, key, value, sinks, 0.125, 5, position, backend=backend)
        assert torch.equal(found, torch.zeros(1, 1, 96))


@backends
@pytest.mark.parametrize("sink", [-3e38, -1e4, 1e4, 3e38])
def test_sinks_of_any_size(sink, backend):
    query, key, value = normal(1, 1, 1, 2, 16), normal(1, 200, 1, 16, seed=1), normal(1, 200, 1, 16, seed=2)
    sinks = torch.tensor([sink, 0.0])
    scores = query[0, 0, 0].double() @ key[0, :, 0].double().T * 0.125
    weights = torch.softmax(torch.cat([scores, sinks.double()[:, None]], -1), -1)[:, :-1]
    expected = (weights @ value[0, :, 0].double()).float().reshape(1, 1, 32)
    for kv_len_per_split in (None, 50):
        found = attention_sink_decode(query, key, value, sinks, 0.125, None, 199, kv_len_per_split, backend=backend)
        torch.testing.assert_close(found, expected)


@backends
@pytest.mark.parametrize("sink", [math.nan, math.inf])
def test_a_sink_without_a_finite_share_leaves_none(sink, backend):
    query, key = normal(1, 1, 1, 2, 16), normal(1, 200, 1, 16)
    for kv_len_per_split in (None, 50):
        sinks = torch.tensor([sink, 0.0])
        found = attention_sink_decode(query, key, key, sinks, 0.125, None, 199, kv_len_per_split, backend=backend)
        assert found[..., :16].isnan().all()
        assert found[..., 16:].isfinite().all()


@backends
def test_only_the_difference_of_a_far_start_and_a_long_window_counts(backend):
    query, key, sinks = normal(1, 1, 2, 3, 16), normal(1, 40, 2, 16), normal(6)
    expected = attention_sink_decode(query, key, key, sinks, 0.125, 20, 50, backend=backend)
    found = attention_sink_decode(query, key, key, sinks, 0.125, 2**40 + 20, 2**40 + 50, backend=backend)
    assert torch.equal(found, expected)


@backends
@pytest.mark.parametrize("heads", [1, 24])
def test_latent_heads_share_keys_and_the_lse_is_base_2(heads, backend):
    q, qpe, kv, kpe = latent(heads, 90)
    scores = (q.double() @ kv.double().mT + qpe.double() @ kpe.double().mT) / math.sqrt(48)
    expected = (torch.softmax(scores, -1) @ kv.double()).float()
    output, lse = mla_decoding(q, qpe, kv, kpe, backend=backend)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(lse, (torch.logsumexp(scores, -1) / math.log(2)).float())
    for transpose in (False, True):
        assert torch.equal(mla_decoding(q, qpe, kv, kpe, None, transpose, backend=backend)[0], output)
    for kv_len_per_split in (None, 64):
        found = mla_decoding_split_kv(q, qpe, kv, kpe, None, kv_len_per_split, backend=backend)
        torch.testing.assert_close(found, expected)


@backends
def test_without_latent_keys_output_is_0_and_lse_is_minus_infinity(backend):
    output, lse = mla_decoding(*latent(3, 0), backend=backend)
    assert torch.equal(output, torch.zeros(2, 3, 32))
    assert torch.equal(lse, torch.full((2, 3), -math.inf))


def test_compiled_a_start_may_be_an_int_or_a_tensor():
    query, key, value, sinks = normal(1, 1, 2, 3, 16), normal(1, 40, 2, 16), normal(1, 40, 2, 16), normal(6)

    def call(start):
        return attention_sink_decode(query, key, value, sinks, 0.125, 9, start, backend="cutile-cpu")

    for start in (20, torch.tensor([20])):
        found = torch.compile(call, backend="aot_eager", fullgraph=True)(start)
        torch.testing.assert_close(found, call(20))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"q": normal(2, 4, 2, 16)}, ShapeError, "q must have one query, in dimension 2"),
        ({"q": normal(2, 3, 1, 16)}, ShapeError, "the number of query heads, 3, must be a multiple"),
        ({"kv_len_per_split": 0}, ArgumentValueError, "kv_len_per_split must be at least 1, got 0"),
        ({"kv_len_per_split": 1.5}, ArgumentTypeError, "kv_len_per_split must be an int, got float"),
        ({"sm_scale": "1"}, ArgumentTypeError, "sm_scale must be a number or None, got str"),
    ],
)
def test_refused(change, error, message):
    given = {"q": normal(2, 4, 1, 16), "k": normal(2, 2, 9, 16), "v": normal(2, 2, 9, 16), "sm_scale": None}
    with pytest.raises(error, match=f"fmha_decode: {message}"):
        fmha_decode(**given | change)


def test_latent_sizes_of_0_are_refused():
    q, qpe, kv, kpe = latent(2, 5)
    with pytest.raises(ShapeError, match="mla_decoding: qpe's last dimension must be at least 8, got 0"):
        mla_decoding(q, qpe[..., :0], kv, kpe[..., :0])
    with pytest.raises(ShapeError, match="mla_decoding: kv must have shape"):
        mla_decoding(q, qpe, kv[..., :8], kpe)


def test_a_gradient_is_refused_by_kernels():
    q, k, v = normal(1, 2, 1, 16).requires_grad_(), normal(1, 2, 5, 16), normal(1, 2, 5, 16)
    with pytest.raises(NotImplementedError, match="it has no backward, and an input requires a gradient"):
        fmha_decode(q, k, v, None, backend="cutile-cpu")
