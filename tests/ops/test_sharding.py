"""Ops on DTensors, in two processes: every op with rules for it, on every backend here.

The processes are started once and do all checks that were selected; each test tells how one went.
"""

from __future__ import annotations

import functools
import json
import traceback
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import tilegym
from tests.ops.test_torch_citizen import PAIRS, Case
from tilegym.conformance.cells import ops_of
from tilegym.contract import Contract
from tilegym.errors import ArgumentTypeError, ArgumentValueError, NoImplementationError
from tilegym.registry import get_op
from tilegym.schemas import hints, is_tensor_list
from tilegym.sharding import matrix_product, rows, whole
from tilegym.testing.gradients import differentiable_outputs

pytestmark = pytest.mark.xdist_group("two processes")  # which take most of a minute to start

PROCESSES = 2
SPLIT = [  # not of ops with lists, in which DTensors are refused
    (backend, name)
    for backend, name in PAIRS
    if get_op(name).contract.sharding and not any(map(is_tensor_list, hints(get_op(name).contract.reference).values()))
]


def mesh_of(*sizes):
    return init_device_mesh("cpu", sizes)


class Split:
    """An op's sample, with its tensors placed on a mesh, and what one process has of it."""

    def __init__(self, backend: str, name: str) -> None:
        self.case = case = Case(name, backend)
        self.contract = case.contract
        self.tensors = {key: value for key, value in case.arguments.items() if isinstance(value, torch.Tensor)}
        leaves = dict(zip(case.inputs, case.leaves(), strict=True))
        outputs = self.call(leaves, backend="torch")
        generator = torch.Generator().manual_seed(1)
        self.weights = [torch.randn(output.shape, generator=generator) for output in outputs]
        sum((output * weight).sum() for output, weight in zip(outputs, self.weights, strict=True)).backward()
        self.expected = [output.detach() for output in outputs]
        self.gradients = {key: leaf.grad for key, leaf in leaves.items()}

    def ways(self):
        return [*self.contract.sharding(*self.contract.canonical(**self.case.arguments))]

    def call(self, given, **more) -> tuple[torch.Tensor, ...]:
        result = self.case.op(**self.case.arguments | given, **{"backend": self.case.backend, **more})
        return differentiable_outputs(self.contract, result)

    def check(self, mesh, placements, call=None) -> tuple[tuple[DTensor, ...], dict[str, DTensor]]:
        """Outputs and gradients are those of one process; `placements`: argument → where, elsewhere whole."""
        whole = [Replicate()] * mesh.ndim
        given = {
            key: distribute_tensor(value, mesh, placements.get(key, whole)).requires_grad_(key in self.case.inputs)
            for key, value in self.tensors.items()
        }
        outputs = (call or self.call)(given)
        for output, expected in zip(outputs, self.expected, strict=True):
            torch.testing.assert_close(output.full_tensor(), expected)
            assert (output.shape, output.stride()) == (expected.shape, expected.stride())
        weighed = zip(outputs, self.weights, strict=True)
        sum((output * distribute_tensor(weight, mesh, whole)).sum() for output, weight in weighed).backward()
        for key, gradient in self.gradients.items():
            torch.testing.assert_close(given[key].grad.full_tensor(), gradient)
        return outputs, given


def each_way_moves_nothing(backend, name):
    """Placed in one of the contract's ways, no process asks another for anything; weights' gradients are summands."""
    split, mesh = Split(backend, name), mesh_of(PROCESSES)
    for way in split.ways():
        shards = {key: [Shard(dim)] for key, dim in way.items() if key in split.tensors}
        outputs, given = split.check(mesh, shards)
        placed = Partial() if way["output"] == "sum" else Shard(way["output"])
        assert {output.placements for output in outputs} == {(placed,)}
        for key in split.case.inputs:
            assert given[key].grad.placements == ((Shard(way[key]),) if key in way else (Partial(),))
        with CommDebugMode() as communication:
            split.call(given)
        assert communication.get_total_counts() == 0


def any_other_placement_is_right(backend, name):
    split, mesh = Split(backend, name), mesh_of(PROCESSES)
    outputs, given = split.check(mesh, {})
    assert {output.placements for output in outputs} == {(Replicate(),)}
    assert {given[key].grad.placements for key in split.case.inputs} == {(Replicate(),)}
    first = next(iter(split.case.inputs))
    split.check(mesh, {first: [Shard(given[first].ndim - 1)]})
    split.check(mesh, {key: [Shard(0)] for key in given})  # weights too, as FSDP has them
    split.check(mesh_of(PROCESSES, 1), {first: [Shard(0), Shard(1)]})


def compiled_code_is_the_same(backend, name):
    split = Split(backend, name)
    torch.compiler.reset()
    call = torch.compile(split.call, backend="aot_eager", fullgraph=True)
    outputs, _ = split.check(mesh_of(PROCESSES), {next(iter(split.case.inputs)): [Shard(0)]}, call)
    assert {output.placements for output in outputs} == {(Shard(0),)}


def out_is_written_wherever_it_lies(backend, name):
    """Of the first op that takes `out`."""
    case, mesh = Case(name, backend), mesh_of(PROCESSES)
    expected, _, _ = case.expected
    x = distribute_tensor(case.leaves()[0].detach(), mesh, [Shard(0)])
    for place in (Shard(0), Shard(1), Replicate()):
        out = distribute_tensor(torch.zeros_like(expected), mesh, [place])
        assert case.op(x, out=out, backend=backend) is out
        assert out.placements == (place,)
        torch.testing.assert_close(out.full_tensor(), expected)


def product(**changes):
    """An op with a contraction, declared in a script: x @ y."""

    @tilegym.dispatch("sharding_product")
    def product(x: torch.Tensor, y: torch.Tensor | list[torch.Tensor]) -> torch.Tensor: ...

    def canonical(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, y

    fields = {
        "canonical": canonical,
        "reference": lambda x, y: x @ y,
        "magnitude": lambda x, y: x.abs() @ y.abs(),
        "reduction": lambda x, y: x.shape[1],
        "fake": lambda x, y: torch.empty(x.shape[0], y.shape[1], dtype=x.dtype, device=x.device),
        "samples": list,
        "bytes_moved": lambda *_: 0,
        "flops": lambda *_: 0,
        "sharding": matrix_product("x", "y"),
    }
    product.contract = Contract(**fields | changes)
    tilegym.register_impl("sharding_product", "plain", composite=True)(lambda x, y: x @ y)
    return functools.partial(product, backend="plain")


def contractions_give_partial_sums():
    mesh, call = mesh_of(PROCESSES), product()
    x, y = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in ((3, 4), (4, 5)))
    placed = {
        (Shard(0), Replicate()): (Shard(0), Shard(0), Partial()),
        (Replicate(), Shard(1)): (Shard(1), Partial(), Shard(1)),
        (Shard(1), Shard(0)): (Partial(), Shard(1), Shard(0)),
        (Shard(1), Replicate()): (Partial(), Shard(1), Replicate()),  # each process has its part of y: nothing moves
    }
    for (of_x, of_y), (of_output, *of_gradients) in placed.items():
        a, b = (distribute_tensor(t, mesh, [p]).requires_grad_() for t, p in ((x, of_x), (y, of_y)))
        output = call(a, b)
        assert output.placements == (of_output,)
        torch.testing.assert_close(output.full_tensor(), x @ y)
        output.full_tensor().square().sum().backward()
        assert [leaf.grad.placements for leaf in (a, b)] == [(p,) for p in of_gradients]
        torch.testing.assert_close(a.grad.full_tensor(), 2 * (x @ y) @ y.t())
        torch.testing.assert_close(b.grad.full_tensor(), 2 * x.t() @ (x @ y))


def wrong_calls_say_what_to_do():
    mesh, x = mesh_of(PROCESSES), torch.ones(4, 4)
    placed = distribute_tensor(x, mesh, [Shard(0)])
    for call in (product(), torch.compile(product(), backend="eager", fullgraph=True)):
        with pytest.raises(
            Exception, match=r"y must be a DTensor, as x is, got a plain one.*distribute_tensor\(y, x\."
        ):
            call(placed, x)
    with pytest.raises(ArgumentTypeError, match="x must be a DTensor, as y is"):
        product()(x, placed)
    with pytest.raises(ArgumentTypeError, match="y holds DTensors in a list"):
        product()(placed, [placed])
    other = distribute_tensor(x, mesh_of(PROCESSES, 1), [Replicate(), Replicate()])
    with pytest.raises(ArgumentValueError, match="y must be on the mesh of x"):
        product()(placed, other)
    with pytest.raises(NoImplementationError, match="does not say how the op may be split"):
        product(sharding=None)(placed, placed)
    assert product(sharding=whole)(placed, placed).placements == (Replicate(),)


def test_rows_tell_the_ways():
    x = torch.empty(2, 3, 4)
    assert [*rows("x")(x)] == [{"x": 0, "output": 0}, {"x": 1, "output": 1}]
    assert [*rows("x", "y", within=0)(x, x)] == [dict.fromkeys(("x", "y", "output"), dim) for dim in range(3)]
    assert [*rows("x", within=lambda x, last: last)(x, 2)] == [{"x": 0, "output": 0}]
    assert [*whole(x)] == []


def test_every_op_of_core_has_rules():
    assert [name for name in ops_of("torch") if get_op(name).contract.sharding is None] == []


CHECKS = [(each_way_moves_nothing, *pair) for pair in SPLIT]
CHECKS += [(any_other_placement_is_right, *pair) for pair in SPLIT if pair[0] == "torch"]  # moved before any backend
_most = max(SPLIT, key=lambda pair: (len(get_op(pair[1]).contract.gradient.inputs), pair[0] != "torch"))
CHECKS += [(compiled_code_is_the_same, *_most)]
CHECKS += [(out_is_written_wherever_it_lies, *pair) for pair in SPLIT if "out" in get_op(pair[1]).meaningful]
CHECKS += [(contractions_give_partial_sums, "", ""), (wrong_calls_say_what_to_do, "", "")]
NAMED = {(check.__name__, backend, op): check for check, backend, op in CHECKS}


def why_wrong(key) -> str | None:
    try:
        NAMED[key](*filter(None, key[1:]))
    except Exception:  # noqa: BLE001 - its test shows it, and the next check is due
        return traceback.format_exc()
    return None


def process(rank: int, folder: str, wanted: list[tuple[str, str, str]]) -> None:
    """Do the checks, and write down what went wrong."""
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES, timeout=timedelta(seconds=60))
    found = {"-".join(key): why for key in wanted if (why := why_wrong(key))}
    distributed.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


@pytest.fixture(scope="module")
def failures(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    here = [item.callspec.params for item in request.session.items if item.name.startswith("test_in_two_processes[")]
    wanted = [(params["check"], params["backend"], params["op"]) for params in here]
    multiprocessing.spawn(process, (str(folder), wanted), nprocs=PROCESSES)
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(PROCESSES)]


@pytest.mark.turns("backend")
@pytest.mark.parametrize(("check", "backend", "op"), NAMED)
def test_in_two_processes(failures, check, backend, op):
    assert "\n".join(found[name] for found in failures if (name := f"{check}-{backend}-{op}") in found) == ""
