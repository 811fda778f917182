"""What a model developer does to a PyTorch op works on ours: every op with a gradient, on every backend here.

Where an op has several outputs with a gradient, they are looked at as one, flattened.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from unittest import mock

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import tilegym
from tilegym import registry
from tilegym.conformance.cells import cells_of, ops_of, tensor_specs
from tilegym.errors import GradientError
from tilegym.lists import filled, form_of
from tilegym.testing import materialize
from tilegym.testing.accuracy import double
from tilegym.testing.gradients import differentiable_outputs, inputs_of

BACKENDS = [name for name in tilegym.get_available_backends() if name != "cutile"]
PAIRS = [(backend, op) for backend in BACKENDS for op in ops_of(backend) if registry.get_op(op).contract.gradient]
everywhere = pytest.mark.parametrize(("backend", "name"), PAIRS)
KERNELS = [(backend, op) for backend, op in PAIRS if backend != "torch"]
on_kernels = pytest.mark.parametrize(("backend", "name"), KERNELS)


class Case:
    """One op on one backend, with the arguments of a plain sample of at least two dimensions."""

    def __init__(self, name: str, backend: str) -> None:
        self.name, self.backend = name, backend
        self.op = registry.get_op(name).function
        self.contract = self.op.contract
        sample = next(
            cell.sample
            for cell in cells_of(backend)
            if cell.op == name
            and cell.gradient
            and len(next(tensor_specs(cell.sample)).shape) >= 2
            and min(next(tensor_specs(cell.sample)).shape) > 1
        )
        self.arguments = materialize(sample, dtype=torch.float32)
        self.inputs = inputs_of(self.contract.gradient, self.arguments)

    def instead(self, named: dict[str, object], inputs: tuple[torch.Tensor, ...]) -> dict[str, object]:
        """Arguments by name, with other tensors for those that have a gradient."""
        names = [name for name in self.contract.gradient.inputs if named.get(name) is not None]
        return named | dict(zip(names, filled(form_of(named[name] for name in names), inputs), strict=True))

    def call(self, *inputs: torch.Tensor, **more: object) -> torch.Tensor:
        """Those outputs that have a gradient: the one, or several as one."""
        given = {"backend": self.backend, **more}
        result = self.op(**self.instead(self.arguments, inputs), **given)
        outputs = differentiable_outputs(self.contract, result)
        return outputs[0] if len(outputs) == 1 else torch.cat([output.flatten() for output in outputs])

    def leaves(self) -> list[torch.Tensor]:
        return [one.detach().clone().requires_grad_() for one in self.inputs.values()]

    def gradients(self, call, weight: torch.Tensor) -> list[torch.Tensor]:
        leaves = self.leaves()
        (call(*leaves) * weight).sum().backward()
        return [leaf.grad for leaf in leaves]

    @property
    def expected(self) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        """Output and gradients of backend torch, which conformance holds to the reference, and what weighs them."""
        output = self.call(*self.leaves(), backend="torch").detach()
        weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
        return output, self.gradients(lambda *inputs: self.call(*inputs, backend="torch"), weight), weight

    def check(self, call) -> None:
        """A way of calling must give the output and the gradients of backend torch."""
        output, gradients, weight = self.expected
        torch.testing.assert_close(call(*self.leaves()), output)
        torch.testing.assert_close(self.gradients(call, weight), gradients)


@pytest.fixture
def case(name, backend):
    return Case(name, backend)


@everywhere
def test_autograd(case):
    case.check(case.call)


@pytest.mark.parametrize("name", [name for backend, name in PAIRS if backend == "torch"])
def test_gradcheck(name):
    """Backend torch with its float32 steps made float64, and the reference.

    To the reference's gradients in float64 the conformance suite holds those of every backend in float32.
    """
    case, op, found = Case(name, "torch"), registry.get_op(name), registry.implementation(name, "torch")
    canonical = dict(zip(op.canonical_parameters, map(double, case.contract.canonical(**case.arguments)), strict=True))

    def implementation(*leaves):
        positional, named = op.arguments(found, tuple(case.instead(canonical, leaves).values()))
        return found.function(*positional, **named)

    def reference(*leaves):
        return case.contract.reference(**case.instead(canonical, leaves))

    leaves = [leaf.detach().double().requires_grad_() for leaf in case.leaves()]
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        assert torch.autograd.gradcheck(implementation, leaves, fast_mode=True)
        torch.testing.assert_close(implementation(*leaves), reference(*leaves))
    assert torch.autograd.gradcheck(reference, leaves, fast_mode=True)


@everywhere
def test_only_inputs_that_need_a_gradient_get_one(case):
    _, gradients, weight = case.expected
    for index in range(len(case.inputs)):
        leaves = [leaf.requires_grad_(i == index) for i, leaf in enumerate(case.leaves())]
        (case.call(*leaves) * weight).sum().backward()
        torch.testing.assert_close(leaves[index].grad, gradients[index])
        assert all(leaf.grad is None for i, leaf in enumerate(leaves) if i != index)


@everywhere
def test_no_grad_and_inference_mode_make_no_graph(case):
    with torch.no_grad():
        assert not case.call(*case.leaves()).requires_grad
    with torch.inference_mode():
        assert case.call(*case.leaves()).is_inference()


@everywhere
def test_checkpointing_and_hooks(case):
    seen = []

    def call(*inputs):
        output = checkpoint(case.call, *inputs, use_reentrant=False)
        if output.requires_grad:
            output.register_hook(lambda gradient: seen.append(gradient.shape))
        return output

    case.check(call)
    assert seen == [case.expected[0].shape]


@everywhere
@pytest.mark.parametrize(("compiler", "dynamic"), [("eager", False), ("aot_eager", True)])
@pytest.mark.turns("compiler", "dynamic")
def test_compile_without_a_graph_break(case, compiler, dynamic):
    torch._dynamo.reset()
    case.check(torch.compile(case.call, fullgraph=True, backend=compiler, dynamic=dynamic))


@on_kernels
def test_compiled_code_is_one_node_forward_and_one_backward(case):
    torch._dynamo.reset()
    graphs = []

    def keep(graph, _):
        graphs.append([str(node.target) for node in graph.graph.nodes if "tilegym" in str(node.target)])
        return make_boxed_func(graph)

    case.gradients(torch.compile(case.call, fullgraph=True, backend=aot_autograd(fw_compiler=keep)), case.expected[2])
    assert graphs == [[f"tilegym.{case.name}_fwd.default"], [f"tilegym.{case.name}_bwd.default"]]


@everywhere
def test_make_fx_sees_the_op(case):
    inputs = [leaf.detach() for leaf in case.leaves()]
    graph = make_fx(case.call)(*inputs)
    torch.testing.assert_close(graph(*inputs), case.expected[0])
    names = {str(node.target) for node in graph.graph.nodes}
    assert (f"tilegym.{case.name}.default" in names) == (case.backend != "torch")


LOADER = """
import sys, torch, tilegym
tilegym.register_torch_ops()
for folder in map(str.strip, sys.stdin):
    program = torch.export.load(f"{folder}/model.pt2").module()
    inputs, expected = torch.load(f"{folder}/data.pt")
    torch.testing.assert_close(program(*inputs), expected)
    print("right", flush=True)
"""


@pytest.fixture(scope="module")
def fresh_process():
    """A function that has a program loaded and tried in a process that has traced nothing: one for all, it is slow."""
    command = [sys.executable, "-W", "ignore", "-c", LOADER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def load(folder):
            print(folder, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        yield load
        process.stdin.close()


@everywhere
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.turns("backend", "strict")
def test_export_and_load_in_a_fresh_process(case, strict, tmp_path, fresh_process):
    class Model(torch.nn.Module):
        def forward(self, *inputs):
            return case.call(*inputs)

    inputs = tuple(leaf.detach() for leaf in case.leaves())
    program = torch.export.export(Model(), inputs, strict=strict)
    torch.testing.assert_close(program.module()(*inputs), case.expected[0])
    torch.export.save(program, tmp_path / "model.pt2")
    torch.save((inputs, case.expected[0]), tmp_path / "data.pt")
    assert fresh_process(tmp_path) == "right"


@on_kernels
def test_opcheck(case):
    names = registry.get_op(case.name).canonical_parameters
    canonical = dict(zip(names, case.contract.canonical(**case.arguments), strict=True))
    canonical.pop("out", None)
    for suffix in ("", "_fwd"):
        tilegym.register_torch_ops()
        overload = getattr(torch.ops.tilegym, case.name + suffix).default
        given = case.instead(canonical, case.leaves())
        found = torch.library.opcheck(overload, tuple(given.values()), {"backend": case.backend})
        assert set(found.values()) == {"SUCCESS"}


@on_kernels
def test_second_derivative_raises(case):
    leaves = case.leaves()
    (gradient, *_) = torch.autograd.grad(case.call(*leaves).square().sum(), leaves, create_graph=True)
    with pytest.raises(GradientError, match=f"{case.name}.*second derivative"):
        gradient.sum().backward()


def test_second_derivative_of_the_pytorch_backend_is_right():
    x = torch.randn(3, 5, dtype=torch.float32, requires_grad=True)
    for op, reference in [(tilegym.ops.softmax, lambda x: torch.softmax(x, -1))]:
        second = [
            torch.autograd.grad(torch.autograd.grad(f(x).pow(3).sum(), x, create_graph=True)[0].square().sum(), x)[0]
            for f in (lambda x, op=op: op(x, backend="torch"), reference)
        ]
        torch.testing.assert_close(*second)


@on_kernels
def test_backward_stays_on_the_forward_s_backend(case, monkeypatch):
    """Also from autograd's own threads, after the preferred backend has changed."""
    found = registry.implementation(case.name, case.backend)
    ran = []

    def backward(*args, **kwargs):
        ran.append(threading.current_thread())
        return found.backward(*args, **kwargs)

    backward.__wrapped__ = found.backward  # its signature

    @functools.wraps(found.function)
    def forward(*args, **kwargs):
        return found.function(*args, **kwargs)

    forward.__module__ = __name__  # a script's registration, as this file is no file of a plugin
    tilegym.register_impl(case.name, case.backend)(forward)
    tilegym.register_backward(case.name, case.backend, forward=found.forward)(backward)
    leaves = case.leaves()
    with tilegym.use_backend(case.backend):
        output = case.call(*leaves, backend=None)
    tilegym.set_backend("torch")
    worker = threading.Thread(target=lambda: output.sum().backward())
    worker.start()
    worker.join()
    assert len(ran) == 1


@everywhere
@pytest.mark.turns("backend")
def test_scopes_and_defaults_recompile_once(case):
    torch._dynamo.reset()
    compiled = []

    def keep(graph, _):
        compiled.append(graph)
        return graph

    run = torch.compile(lambda *inputs: case.op(**case.arguments), fullgraph=True, backend=keep)
    run()
    with tilegym.use_backend(case.backend):
        run()
        run()
    run()
    tilegym.set_backend(case.backend)
    run()
    tilegym.set_backend("auto")
    run()
    assert len(compiled) <= 3
    nodes = {str(node.target) for node in compiled[1].graph.nodes}
    assert (f"tilegym.{case.name}.default" in nodes) == (case.backend != "torch")


@everywhere
def test_vmap_and_functional_grad(case):
    """Right on backend torch; refused with a reason on kernels, which `auto` then passes over."""
    inputs = [leaf.detach() for leaf in case.leaves()]
    function = torch.func.grad(lambda *given: case.call(*given).square().sum())
    if case.backend == "torch":
        torch.testing.assert_close(
            function(*inputs), case.gradients(lambda *g: case.call(*g).square(), torch.ones(()))[0]
        )
        stacked = torch.vmap(case.call, in_dims=(0, *[None] * (len(inputs) - 1)))(
            inputs[0].expand(2, *inputs[0].shape), *inputs[1:]
        )
        torch.testing.assert_close(stacked[1], case.expected[0])
    else:
        with pytest.raises(NotImplementedError, match="transforms"):
            function(*inputs)


@everywhere
def test_gradients_of_a_batch_at_once(case):
    """The same of vmap over a backward."""
    leaf, *others = case.leaves()
    output, weight = case.call(leaf, *others), case.expected[2]

    def gradients():
        return torch.autograd.grad(output, leaf, torch.stack([weight, 2 * weight]), is_grads_batched=True)[0]

    if case.backend == "torch":
        expected = case.expected[1][0]
        torch.testing.assert_close(gradients(), torch.stack([expected, 2 * expected]))
    else:
        with pytest.raises(GradientError, match=f"{case.name}: .* no gradients of a batch at once"):
            gradients()


@everywhere
def test_subclasses_keep_their_type(case):
    class Mine(torch.Tensor):
        pass

    output = case.call(*(leaf.detach().as_subclass(Mine) for leaf in case.leaves()))
    assert type(output) is Mine
    torch.testing.assert_close(output.as_subclass(torch.Tensor), case.expected[0])


@everywhere
def test_dispatch_modes_see_the_call(case):
    with FlopCounterMode(display=False):
        torch.testing.assert_close(case.call(*case.leaves()), case.expected[0])


@on_kernels
def test_autocast_leaves_kernels_alone(case):
    """They compute in the dtype they are given; plain PyTorch code follows PyTorch's own rules."""
    expected, _, _ = case.expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(case.call(*case.leaves()), expected)


@everywhere
@pytest.mark.turns("backend")
def test_deterministic_mode(case):
    torch.use_deterministic_algorithms(True)
    try:
        case.check(case.call)
    finally:
        torch.use_deterministic_algorithms(False)
