"""Decode ops as PyTorch sees them: one node of compiled code each, and ways to be split among processes."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.sharding import OUTPUT
from tilegym.testing import materialize
from tilegym.testing.accuracy import tensors_of

SAMPLES = {
    "attention_sink_decode": "odd",
    "fmha_decode": "odd-groups",
    "gemma_attention_decode": "odd",
    "mla_decoding": "odd",
    "mla_decoding_split_kv": "more-splits-than-keys",
    "splitk_reduce": "odd",
}
every_op = pytest.mark.parametrize("name", SAMPLES)


def op_and_arguments(name):
    op = getattr(tilegym.ops, name)
    sample = next(sample for sample in op.contract.samples() if sample.name == SAMPLES[name])
    return op, materialize(sample, dtype=torch.float32)


@every_op
def test_compiled_it_is_one_node_and_returns_the_same(name):
    op, arguments = op_and_arguments(name)
    nodes = []

    def backend(graph, _):
        nodes.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    compiled = torch.compile(lambda **given: op(**given, backend="cutile-cpu"), backend=backend, fullgraph=True)
    found, expected = compiled(**arguments), op(**arguments, backend="cutile-cpu")
    torch.testing.assert_close(found, expected)
    assert sum(node.startswith(f"tilegym.{name}") for node in nodes) == 1


@every_op
def test_each_way_to_split_it_gives_parts_of_the_whole(name):
    op, arguments = op_and_arguments(name)
    canonical = op.contract.canonical(**arguments)
    expected = [one.clone() for one in tensors_of(op(**arguments, backend="torch"))]
    ways = list(op.contract.sharding(*canonical))
    assert ways
    for way in ways:
        halves = [{}, {}]
        for key, value in arguments.items():
            dim = way.get(key, way.get(OUTPUT) if key == "attn_out" else None)
            parts = (value, value) if dim is None else value.tensor_split(2, dim)
            for half, part in zip(halves, parts, strict=True):
                half[key] = part
        results = [tensors_of(op(**half, backend="torch")) for half in halves]
        for whole, *parts in zip(expected, *results, strict=True):
            torch.testing.assert_close(torch.cat(parts, way[OUTPUT]), whole)
