"""Traced code writes into `out` by one node, NAME_out, on every op and backend that has it."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

import tilegym
from tests.ops.test_torch_citizen import KERNELS, Case
from tilegym import registry

HERE = [(backend, name) for backend, name in KERNELS if "out" in registry.get_op(name).canonical_parameters]


class Writing(Case):
    """The sample's arguments in canonical form, and a place for the result."""

    def __init__(self, backend: str, name: str) -> None:
        super().__init__(name, backend)
        tilegym.register_torch_ops()
        names = registry.get_op(name).canonical_parameters
        canonical = dict(zip(names, self.contract.canonical(**self.arguments), strict=True))
        del canonical["out"]
        self.given = [*canonical.values()]
        self.node = getattr(torch.ops.tilegym, f"{name}_out")
        self.result = self.expected[0]

    def write(self, out: torch.Tensor) -> torch.Tensor:
        self.node(*self.given, out, backend=self.backend)
        return out


@pytest.fixture
def writing(name, backend):
    torch._dynamo.reset()
    return Writing(backend, name)


@pytest.mark.parametrize(("backend", "name"), HERE)
def test_opcheck(writing):
    arguments = (*writing.given, torch.zeros_like(writing.result))
    found = torch.library.opcheck(writing.node.default, arguments, {"backend": writing.backend})
    assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize(("backend", "name"), HERE)
def test_a_node_writes_where_out_lies(writing):
    buffer = torch.full((*writing.result.shape, 2), 7.0)
    torch.testing.assert_close(writing.write(buffer[..., 0]), writing.result)
    assert (buffer[..., 1] == 7).all()


@pytest.mark.parametrize(("backend", "name"), [pair for pair in HERE if "out" in registry.get_op(pair[1]).positional])
def test_traced_calls_with_out_are_that_node_alone(writing):
    graphs = []

    def keep(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return make_boxed_func(graph)

    def call(out):
        return writing.op(**writing.arguments | {"out": out}, backend=writing.backend)

    node = str(writing.node.default)
    traced = make_fx(call)(torch.zeros_like(writing.result))
    assert [str(n.target) for n in traced.graph.nodes if n.op == "call_function"] == [node]
    compiled = torch.compile(call, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    out = torch.zeros_like(writing.result)
    assert compiled(out) is out
    torch.testing.assert_close(out, writing.result)
    assert [target.partition("_v2")[0] for target in graphs[0]] == [
        "auto_functionalized",
        "<built-in function getitem>",
    ]


@pytest.mark.parametrize(("backend", "name"), [pair for pair in HERE if "out" in registry.get_op(pair[1]).positional])
def test_a_gradient_is_not_lost_to_out(writing):
    """Nobody differentiates what is written into `out`: such a call is refused, traced too."""
    leaf = dict(zip(writing.inputs, writing.leaves(), strict=True))

    def call(out):
        return writing.op(**writing.arguments | leaf | {"out": out}, backend=writing.backend)

    for one in (call, torch.compile(call, backend="eager", fullgraph=True)):
        with pytest.raises(Exception, match="out= was given, and an input requires a gradient"):
            one(torch.zeros_like(writing.result))


@pytest.mark.parametrize(("backend", "name"), [pair for pair in HERE if "out" in registry.get_op(pair[1]).positional])
def test_autograd_is_told_that_out_was_written(writing):
    """What it had kept of `out` is gone: a wrong gradient would be silent. Eagerly, from the table too, and traced."""

    def call(out):
        return writing.op(**writing.arguments | {"out": out}, backend=writing.backend)

    for one in (call, call, torch.compile(call, backend="aot_eager", fullgraph=True)):
        out, factor = torch.zeros_like(writing.result), torch.ones_like(writing.result, requires_grad=True)
        product = (out * factor).sum()
        one(out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
