"""What stands before the attention ops: which op is called, with what, and functions as Hugging Face calls them."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import tilegym
from tilegym.errors import ArgumentValueError, ShapeError
from tilegym.ops import (
    attention_sink_interface,
    fmha_interface,
    get_attention_sink_interface,
    get_fmha_gemma3_interface,
    get_fmha_interface,
    mla_decoding_interface,
    mla_interface,
)

MODULE = SimpleNamespace(is_causal=True)
UNKNOWN = {"position_ids": None, "cache_position": torch.arange(3), "use_cache": True}


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def qkv(queries, keys=20):
    return normal(2, 4, queries, 16), normal(2, 2, keys, 16, seed=1), normal(2, 2, keys, 16, seed=2)


def expected(q, k, v, *, window=None, causal=True, cap=None, sinks=None):
    """In float64; the queries are the last of the positions."""
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.mT / math.sqrt(q.shape[3])
    scores = scores if cap is None else cap * torch.tanh(scores / cap)
    position = torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    behind = position - torch.arange(k.shape[2])
    seen = (behind >= 0) if causal else torch.ones_like(behind, dtype=torch.bool)
    seen = seen if window is None else seen & (behind < window)
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(*scores.shape[:3], 1)
        return (torch.softmax(torch.cat([scores, column], -1), -1)[..., :-1] @ v).float()
    return (torch.softmax(scores, -1) @ v).float()


def called(function, *args, **kwargs):
    """What it returns, and the ops that it called."""
    with tilegym.trace() as calls:
        result = function(*args, **kwargs)
    return result, [(call.op, call.backend) for call in calls]


@pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])
def test_fmha_interface_decodes_one_query(backend):
    for queries, causal, op in [(20, True, "fmha"), (20, False, "fmha"), (1, True, "fmha_decode")]:
        q, k, v = qkv(queries)
        result, ops = called(fmha_interface, q, k, v, causal, None, backend, has_backward=True, kernel_configs={})
        torch.testing.assert_close(result, expected(q, k, v, causal=causal))
        assert ops == [(op, backend)]


def test_one_query_that_needs_a_gradient_has_it():
    q, k, v = (x.requires_grad_() for x in qkv(1))
    result, ops = called(fmha_interface, q, k, v, scaling=0.3)
    wanted = scaled_dot_product_attention(q, k, v, scale=0.3, enable_gqa=True)
    gradients = [torch.autograd.grad(one.square().sum(), (q, k, v)) for one in (result, wanted)]
    torch.testing.assert_close(*gradients)
    assert [op for op, _ in ops] == ["fmha"]


@pytest.mark.parametrize(
    ("queries", "window", "op"),
    [(20, None, "fmha"), (1, None, "fmha_decode"), (20, 3, "swa_attention"), (1, 3, "fmha_decode")],
)
def test_hugging_face_fmha(queries, window, op):
    q, k, v = qkv(queries)
    function = get_fmha_interface(backend="torch")
    (output, weights), ops = called(function, MODULE, q, k, v, None, sliding_window=window, **UNKNOWN)
    torch.testing.assert_close(output, expected(q, k, v, window=window).transpose(1, 2))
    assert weights is None
    assert ops == [(op, "torch")]


@pytest.mark.parametrize(("queries", "op"), [(20, "gemma_attention"), (1, "gemma_attention_decode")])
def test_hugging_face_gemma(queries, op):
    q, k, v = qkv(queries)
    function = get_fmha_gemma3_interface(backend="torch")
    for window, cap in [(None, None), (3, None), (100, 2.0)]:
        module = SimpleNamespace(is_causal=True, attn_logit_softcapping=cap)
        (output, weights), ops = called(function, module, q, k, v, None, sliding_window=window, **UNKNOWN)
        torch.testing.assert_close(output, expected(q, k, v, window=window, cap=cap).transpose(1, 2))
        assert weights is None
        assert ops == [(op, "torch")]
        capped, _ = function(MODULE, q, k, v, None, sliding_window=window, softcap=1.5)
        torch.testing.assert_close(capped, expected(q, k, v, window=window, cap=1.5).transpose(1, 2))


def test_what_is_causal_is_said_by_the_call_or_the_module():
    q, k, v = qkv(20)
    both_ways = expected(q, k, v, causal=False).transpose(1, 2)
    for function in (get_fmha_interface(), get_fmha_gemma3_interface()):
        for module, more in [(SimpleNamespace(is_causal=False), {}), (MODULE, {"is_causal": False})]:
            torch.testing.assert_close(function(module, q, k, v, None, **more)[0], both_ways)
        torch.testing.assert_close(function(object(), q, k, v, None)[0], expected(q, k, v).transpose(1, 2))


@pytest.mark.parametrize("make", [get_fmha_interface, get_fmha_gemma3_interface])
def test_queries_that_continue_a_cache_are_refused(make):
    """The ops would take them for the first positions; if all keys are seen, it does not matter."""
    (q, k, v), function = qkv(7), make()
    for more in ({}, {"sliding_window": 3, "is_causal": False}):
        with pytest.raises(ArgumentValueError, match=f"{make.__name__}: several queries must be as .*, got 7 and 20"):
            function(MODULE, q, k, v, None, **more)
    output, _ = function(MODULE, q, k, v, None, is_causal=False)
    torch.testing.assert_close(output, expected(q, k, v, causal=False).transpose(1, 2))


@pytest.mark.parametrize(
    ("queries", "op"), [(20, "attention_sink"), (7, "attention_sink"), (1, "attention_sink_decode")]
)
def test_sinks_with_heads_before_positions(queries, op):
    (q, k, v), sinks = qkv(queries), normal(4, seed=3)
    for window in (None, 3):
        wanted = expected(q, k, v, window=window, sinks=sinks)
        for start in (None, 20 - queries, torch.tensor([20 - queries])):
            result, ops = called(attention_sink_interface, q, k, v, sinks, None, window, start, "torch")
            torch.testing.assert_close(result, wanted)
            assert ops == [(op, "torch")]
        function = get_attention_sink_interface(backend="torch")
        for module, more in [(SimpleNamespace(sinks=sinks), {}), (MODULE, {"s_aux": sinks})]:
            output, weights = function(module, q, k, v, None, sliding_window=window, **more, **UNKNOWN)
            torch.testing.assert_close(output, wanted.transpose(1, 2))
            assert weights is None


@pytest.mark.parametrize("interface", [attention_sink_interface, fmha_interface])
def test_tensors_of_another_rank_are_refused(interface):
    x = torch.ones(2, 8)
    with pytest.raises(ShapeError, match=r"q must have shape \(any, any, any, any\), got \(2, 8\)"):
        interface(x, x, x, torch.ones(3) if interface is attention_sink_interface else True)


def test_heads_that_do_not_fit_are_refused():
    q, k, v = torch.ones(1, 3, 4, 8), torch.ones(1, 2, 4, 8), torch.ones(1, 2, 4, 8)
    with pytest.raises(ShapeError, match="the number of query heads, 3, must be a multiple of that of keys, 2"):
        attention_sink_interface(q, k, v, torch.ones(3))


def test_one_query_of_float8_is_attended_to():
    q, k, v = (x.to(torch.float8_e5m2) for x in qkv(1))
    found = fmha_interface(q, k, v, backend="torch")
    assert found.dtype == torch.float8_e5m2
    torch.testing.assert_close(found.float(), expected(q.float(), k.float(), v.float()), rtol=0.125, atol=1e-3)


def test_latent_attention_takes_a_backend_by_position():
    q, k, v = qkv(20)
    qpe, kpe = normal(2, 4, 20, 8, seed=4), normal(2, 1, 20, 8, seed=5)
    result, ops = called(mla_interface, q, k, v, qpe, kpe, True, None, "torch")
    together = torch.cat([k, kpe.expand(2, 2, 20, 8)], -1)
    torch.testing.assert_close(result, expected(torch.cat([q, qpe], -1), together, v))
    assert ops == [("mla", "torch")]
    arguments = q[:, :, 0], qpe[:, :, 0], k[:, 0], kpe[:, 0]
    (output, lse), ops = called(mla_decoding_interface, *arguments, 0.2, True, "torch")
    scores = (arguments[0] @ arguments[2].mT + arguments[1] @ arguments[3].mT) * 0.2
    torch.testing.assert_close(output, torch.softmax(scores, -1) @ arguments[2])
    torch.testing.assert_close(lse, torch.logsumexp(scores, -1) / math.log(2))
    assert ops == [("mla_decoding", "torch")]


@pytest.mark.parametrize(
    ("make", "change", "message"),
    [
        (get_fmha_interface, {"attention_mask": torch.zeros(2, 1, 20, 20)}, "attention_mask must be None"),
        (get_fmha_interface, {"dropout": 0.1}, "attention has no dropout here, got dropout=0.1"),
        (get_fmha_interface, {"softcap": 5.0}, "softcap must be None, for the op has none; got 5.0"),
        (get_fmha_interface, {"sliding_window": 0}, "sliding_window must be at least 1 or None, got 0"),
        (get_fmha_gemma3_interface, {"attention_mask": torch.zeros(2, 20)}, "attention_mask must be None"),
        (get_fmha_gemma3_interface, {"sliding_window": 1}, "sliding_window must be at least 2 for several queries"),
        (get_attention_sink_interface, {"dropout": 0.1, "s_aux": torch.zeros(4)}, "attention has no dropout here"),
    ],
)
def test_what_the_ops_have_not_is_refused(make, change, message):
    q, k, v = qkv(20)
    arguments = {"query": q, "key": k, "value": v, "attention_mask": None}
    with pytest.raises(ArgumentValueError, match=f"{make.__name__}: {message}"):
        make()(MODULE, **arguments | change)


def test_only_there_is_an_unknown_argument_dropped():
    q, k, v = qkv(20)
    with pytest.raises(TypeError, match="position_ids"):
        fmha_interface(q, k, v, position_ids=None)
