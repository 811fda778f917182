"""Decode on a GPU: a position that is read there, keys that lie far apart, and lengths around those of tiles."""

from __future__ import annotations

import pytest
import torch

from tilegym.ops import attention_sink_decode, fmha_decode, mla_decoding
from tilegym.testing import assert_accurate

pytestmark = pytest.mark.gpu


def randn(*shape, dtype=torch.bfloat16):
    return torch.randn(shape, device="cuda", dtype=dtype)


def test_a_graph_reads_the_position_anew_each_time():
    arguments = {
        "query": randn(2, 1, 4, 8, 64),
        "key": randn(2, 1000, 4, 64),
        "value": randn(2, 1000, 4, 64),
        "sinks": randn(32),
        "sliding_window": 200,
        "start_q": torch.zeros(1, dtype=torch.int64, device="cuda"),
    }
    attention_sink_decode(**arguments, backend="cutile")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = attention_sink_decode(**arguments, backend="cutile")
    for position in (0, 129, 999, 2000):
        arguments["start_q"].fill_(position)
        graph.replay()
        torch.cuda.synchronize()
        assert_accurate(attention_sink_decode.contract, arguments, output)


def test_keys_whose_batches_lie_more_than_2_to_the_31_elements_apart():
    buffer = torch.zeros(2**31 + 2**20, device="cuda", dtype=torch.bfloat16)
    k = buffer.as_strided((2, 2, 1000, 64), (2**31, 64_000, 64, 1)).copy_(randn(2, 2, 1000, 64))
    arguments = {"q": randn(2, 8, 1, 64), "k": k, "v": k, "sm_scale": None}
    assert_accurate(fmha_decode.contract, arguments, fmha_decode(**arguments, backend="cutile"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("keys", [1, 63, 128, 129, 4097])
def test_any_number_of_keys(keys, dtype):
    for heads, kv_heads, size in [(4, 4, 8), (24, 3, 128), (64, 1, 256)]:
        shape = (2, kv_heads, keys, size)
        arguments = {"q": randn(2, heads, 1, size, dtype=dtype), "sm_scale": None}
        arguments |= {name: randn(*shape, dtype=dtype) for name in "kv"}
        assert_accurate(fmha_decode.contract, arguments, fmha_decode(**arguments, backend="cutile"))
    arguments = {"q": randn(2, 24, 512, dtype=dtype), "qpe": randn(2, 24, 64, dtype=dtype)}
    arguments |= {"kv": randn(2, keys, 512, dtype=dtype), "kpe": randn(2, keys, 64, dtype=dtype)}
    assert_accurate(mla_decoding.contract, arguments, mla_decoding(**arguments, backend="cutile"))
