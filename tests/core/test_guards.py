"""What may not take the fast path: each state is right though a fast entry exists, and wrong without its guard."""

from __future__ import annotations

import functools
import linecache
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import tilegym
from tests.core.conftest import backends
from tilegym import calls, guards
from tilegym.errors import DtypeError, NoImplementationError

if TYPE_CHECKING:
    from collections.abc import Callable

PACK = """
@hookimpl
def tilegym_op_packs():
    return [OpPack(name="lab", package="lab_dist.specs")]
"""
DOUBLE = """
import torch
from torch import Tensor
from tilegym import dispatch
from tilegym.contract import Contract, check_tensor

@dispatch("double")
def double(x: Tensor) -> Tensor:
    "2 * x."

def canonical(x: Tensor) -> tuple[Tensor]:
    check_tensor("double", "x", x)
    return (x,)

def reference(x: Tensor) -> Tensor:
    return 2 * x

double.contract = Contract(
    canonical=canonical,
    reference=reference,
    magnitude=lambda x: 2 * x,
    reduction=lambda x: 1,
    fake=lambda x: torch.empty(x.shape, dtype=x.dtype, device=x.device),
    samples=list,
    bytes_moved=lambda x: 0,
    flops=lambda x: 0,
)
"""
DOUBLE_OPTION = """
import dataclasses
from torch import Tensor
from lab_dist.specs.double import canonical as checked, double
from tilegym import dispatch

@dispatch("double_option")
def double_option(anchor: Tensor, **kwargs) -> Tensor:
    "2 * kwargs['x'], or 2 * anchor without."

def canonical(anchor: Tensor, x: Tensor | None = None) -> tuple[Tensor]:
    return checked(anchor if x is None else x)

double_option.contract = dataclasses.replace(double.contract, canonical=canonical)
"""
DOUBLE_LIST = """
import dataclasses
import torch
from torch import Tensor
from lab_dist.specs.double import canonical as checked, double
from tilegym import dispatch

@dispatch("double_list")
def double_list(group: list[Tensor]) -> list[Tensor]:
    "[2 * x for x in group]."

def canonical(group: list[Tensor]) -> tuple[list[Tensor]]:
    return ([checked(x)[0] for x in group],)

def reference(group: list[Tensor]) -> list[Tensor]:
    return [2 * x for x in group]

double_list.contract = dataclasses.replace(
    double.contract, canonical=canonical, reference=reference, fake=lambda group: [*map(torch.empty_like, group)]
)
"""
WITHOUT_CONTRACT = """
from tilegym import dispatch

@dispatch("twice")
def twice(z):
    "2 * z, of any dtype."
"""
KERNEL = """
import torch
from tilegym import register_impl

def {op}({x}):
    "Reads memory as a kernel does: no graph, no lazy negation, no idea of wrappers."
    assert {x}.data_ptr(), "illegal memory access"
    raw = torch.empty(0, dtype={x}.dtype, device={x}.device)
    raw.set_({x}.untyped_storage(), {x}.storage_offset(), {x}.size(), {x}.stride())
    return raw * 2

register_impl("lab.{op}", backend="kernel")({op})
"""
PLAIN = """
from tilegym import register_impl

@register_impl("lab.{op}", backend="plain")
def {op}({x}):
    return {x} * 2
"""
OF_LIST = """
from tilegym import register_impl
from {backend}_dist.ops.double import double

@register_impl("lab.double_list", backend="{backend}")
def double_list(group):
    return [double(x) for x in group]
"""
PACKED = """
@hookimpl
def tilegym_impl_packs():
    return [ImplPack(backend={0!r}, package="{0}_dist.ops", op_pack="lab")]
"""


OPS = {"double": "x", "double_option": "x", "twice": "z"}


@pytest.fixture
def lab(site):
    """Ops, each on a backend of kernels, which `auto` prefers, and in plain PyTorch."""
    specs = {
        "double": DOUBLE,
        "double_option": DOUBLE_OPTION,
        "double_list": DOUBLE_LIST,
        "twice": WITHOUT_CONTRACT,
    }
    site.install("lab-dist", PACK, {f"specs/{op}.py": source for op, source in specs.items()})
    for name, fields, source in (("kernel", "priority=10", KERNEL), ("plain", "composite=True", PLAIN)):
        files = {f"ops/{op}.py": source.format(op=op, x=x) for op, x in OPS.items()}
        files["ops/double_list.py"] = OF_LIST.format(backend=name)
        site.install(f"{name}-dist", backends(f"name={name!r}, {fields}") + PACKED.format(name), files)
    return tilegym.ops.lab


@pytest.fixture(params=["parameter", "option", "first member", "second member"])
def double(lab, request):
    """A call that doubles a tensor, which is a declared parameter, a keyword option or in a list."""
    if request.param == "parameter":
        return lab.double
    if request.param == "first member":
        return functools.wraps(lab.double_list)(lambda x: lab.double_list([x])[0])
    if request.param == "second member":

        def second(x):
            return lab.double_list([torch.ones((2,) * x.dim(), dtype=x.dtype), x])[1]

        return functools.wraps(lab.double_list)(second)
    return functools.wraps(lab.double_option)(lambda x: lab.double_option(torch.ones(2, 2), x=x))


def warm(op: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Call until the fast entry serves tensors of this kind."""
    for _ in range(3):
        assert torch.equal(op(x), 2 * x)
    assert table_of(op), "no fast entry was made"
    assert tilegym.explain(op, x).chosen == "kernel"


def table_of(op):
    return op.__tilegym_op__.table


class Subclass(torch.Tensor):
    """As libraries make them: PyTorch keeps the type through every op."""


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


# Each state calls `op` with tensors that are plain in everything but the state, and asserts what must come of it.


def requires_grad(op):
    x = torch.ones(3, requires_grad=True)
    op(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def grad_mode(op):
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert not op(x).requires_grad
    assert op(x).requires_grad
    with torch.no_grad():
        assert not op(x).requires_grad


def vmap(op):
    x = torch.arange(12.0).reshape(4, 3)
    assert torch.equal(torch.vmap(op)(x), 2 * x)


def func_grad(op):
    gradient = torch.func.grad(lambda x: (op(x) * x).sum())(torch.arange(3.0))
    assert torch.equal(gradient, 4 * torch.arange(3.0))


def forward_tangent(op):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(3), torch.arange(3.0))
        tangent = forward_ad.unpack_dual(op(dual)).tangent
        assert torch.equal(tangent, 2 * torch.arange(3.0))


def func_jvp(op):
    value, tangent = torch.func.jvp(op, (torch.ones(3),), (torch.arange(3.0),))
    assert torch.equal(value, torch.full((3,), 2.0))
    assert torch.equal(tangent, 2 * torch.arange(3.0))


def negative_view(op):
    x = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag
    assert x.is_neg()
    assert torch.equal(op(x), torch.full((3,), -2.0))


def subclass(op):
    result = op(torch.ones(3).as_subclass(Subclass))
    assert type(result) is Subclass
    assert torch.equal(result.as_subclass(Tensor), torch.full((3,), 2.0))


def meta(op):
    result = op(torch.ones(3, device="meta"))
    assert (result.device.type, result.shape) == ("meta", (3,))
    assert tilegym.explain(op, torch.ones(3, device="meta")).chosen == "kernel"
    with tilegym.trace() as calls_made:
        op(torch.ones(3, device="meta"))
    assert calls_made[0].backend == "kernel"


def fake(op):
    with FakeTensorMode() as mode:
        x = mode.from_tensor(torch.ones(3))
        result = op(x)
    assert type(result) is FakeTensor
    assert result.shape == (3,)


def dispatch_mode(op):
    with Recorder() as recorder:
        assert torch.equal(op(torch.ones(3)), torch.full((3,), 2.0))
    assert [name for name in recorder.seen if name.startswith("tilegym")] == [f"tilegym.lab_{op.__name__}.default"]


def other_dtype(op):
    with pytest.raises(DtypeError, match="double: x must be one of float32, float16, bfloat16, got int32"):
        op(torch.ones(3, dtype=torch.int32))


def sparse(op):
    with pytest.raises(TypeError, match="x must be a dense tensor, got layout sparse_coo"):
        op(torch.ones(3).to_sparse())


def functional(op):
    x = torch.ones(3)
    assert torch.equal(torch.func.functionalize(op)(x), torch.full((3,), 2.0))
    traced = torch.fx.experimental.proxy_tensor.make_fx(op, tracing_mode="fake")(x)
    assert f"torch.ops.tilegym.lab_{op.__name__}.default" in traced.code


GUARDED = [
    requires_grad,
    grad_mode,
    vmap,
    func_grad,
    func_jvp,
    forward_tangent,
    negative_view,
    subclass,
    meta,
    fake,
    dispatch_mode,
]
HARMLESS = [other_dtype, sparse]  # the contract's checks, which the fast path makes too, refuse these


@pytest.mark.parametrize("state", [*GUARDED, *HARMLESS, functional], ids=lambda state: state.__name__)
def test_state_is_seen_though_the_fast_entry_exists(double, state):
    warm(double, torch.ones(3))
    state(double)
    warm(double, torch.ones(3))


@pytest.mark.parametrize("state", GUARDED, ids=lambda state: state.__name__)
def test_state_would_go_wrong_without_the_guard(double, state, monkeypatch):
    monkeypatch.setattr(calls, "make_guard", lambda values: lambda *values: True)
    warm(double, torch.ones(3))
    with pytest.raises((AssertionError, RuntimeError, TypeError, UserWarning)) as caught:
        state(blind_to_tangents(double))
    assert not isinstance(caught.value, tilegym.errors.TileGymError)


def blind_to_tangents(op):
    """The op without its own look at the forward-mode level, which PyTorch's guard does not make."""

    @functools.wraps(op)
    def blind(x):
        level, forward_ad._current_level = forward_ad._current_level, -1
        try:
            return op(x)
        finally:
            forward_ad._current_level = level

    return blind


def test_conjugate_view(lab):
    z = torch.complex(torch.ones(3), torch.ones(3))
    warm(lab.twice, z)
    assert z.conj().is_conj()
    assert torch.equal(lab.twice(z.conj()), torch.full((3,), 2 - 2j))
    with pytest.raises(NoImplementationError, match="its kernels take plain tensors only"):
        lab.twice(z.conj(), backend="kernel")


def test_conjugate_view_would_go_wrong_without_the_guard(lab, monkeypatch):
    monkeypatch.setattr(calls, "make_guard", lambda values: lambda *values: True)
    z = torch.complex(torch.ones(3), torch.ones(3))
    warm(lab.twice, z)
    assert not torch.equal(lab.twice(z.conj()), 2 * z.conj())


def test_op_without_contract_refuses_what_it_cannot_show(lab):
    warm(lab.twice, torch.ones(3))
    with pytest.raises(NoImplementationError, match="its kernels take plain tensors only"):
        lab.twice(torch.ones(3, device="meta"), backend="kernel")
    assert lab.twice(torch.ones(3, device="meta")).device.type == "meta"  # plain PyTorch can


# The guard itself, which PyTorch provides: what it tells apart, and what it need not.

DIFFERENT = {
    "dtype": torch.ones(2, 3).half(),
    "rank": torch.ones(3),
    "device": torch.ones(2, 3, device="meta"),
    "gradient": torch.ones(2, 3, requires_grad=True),
    "type": torch.ones(2, 3).as_subclass(Subclass),
    "negative": torch.zeros(2, 3, dtype=torch.complex64).conj().imag,
    "layout": torch.ones(2, 3).to_sparse(),
    "absent": guards.absent("x"),
    "no tensor": 3.0,
}
SAME = {"shape": torch.ones(5, 7), "strides": torch.ones(3, 2).T, "expanded": torch.ones(1, 3).expand(2, 3)}


@pytest.mark.parametrize("name", [*DIFFERENT, *SAME])
def test_guard_tells_kinds_apart(name):
    check = guards.make_guard([torch.ones(2, 3)])
    assert check(torch.ones(2, 3))
    assert check((DIFFERENT | SAME)[name]) == (name in SAME)


def test_absent_argument_is_a_kind_of_its_own():
    check = guards.make_guard([torch.ones(2), guards.absent("weight"), guards.absent("bias")])
    assert check(torch.ones(2), guards.absent("weight"), guards.absent("bias"))
    assert not check(torch.ones(2), guards.absent("weight"), torch.empty(0))


@pytest.mark.parametrize(
    "arguments",
    [lambda x: (x,), lambda x: (x, x, x), lambda x: (x, None, x), lambda x: (x, 2, "text", 3.0), lambda x: (x, [x])],
    ids=["one", "the same thrice", "the same twice", "scalars", "list"],
)
@pytest.mark.parametrize("annotation", [None, Tensor | None])
def test_table_holds_one_entry_for_one_kind_of_call(annotation, arguments):
    def many(a, b=None, c=None, d=None):
        """Takes anything."""

    if annotation is not None:
        many.__annotations__ = dict.fromkeys("abc", annotation)
    op = tilegym.dispatch("many")(many)
    tilegym.register_impl("many", "mine")(lambda a, b, c, d: (a, b, c))
    tilegym.set_backend("mine")
    for _ in range(5):
        x = torch.ones(3)
        given = arguments(x)
        assert all(got is value for got, value in zip(op(*given), given, strict=False))
    plain = not any(isinstance(value, list) for value in given)
    annotated_scalar = annotation is not None and any(isinstance(value, (int, str)) for value in given)
    assert len(table_of(op).get(None, ())) == (1 if plain and not annotated_scalar else 0)


def test_op_first_used_inside_a_mode_works_outside(lab):
    with FakeTensorMode():
        lab.double(torch.ones(3))
    warm(lab.double, torch.ones(3))
    assert type(guards.absent("x")) is guards._Absent


@pytest.mark.parametrize("state", ["inference tensor", "inference mode", "autocast", "deterministic", "parameter"])
def test_states_that_change_nothing(lab, state):
    x = torch.ones(3)
    warm(lab.double, x)
    if state == "inference tensor":
        with torch.inference_mode():
            x = torch.ones(3)
        assert torch.equal(lab.double(x), torch.full((3,), 2.0))
    elif state == "inference mode":
        with torch.inference_mode():
            assert lab.double(x).is_inference()
            assert torch.equal(lab.double(x), torch.full((3,), 2.0))
    elif state == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            assert lab.double(x).dtype is torch.float32
    elif state == "deterministic":
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(lab.double(x), torch.full((3,), 2.0))
        finally:
            torch.use_deterministic_algorithms(False)
    else:
        warm(lab.double, torch.nn.Parameter(x, requires_grad=False))


def test_a_list_may_have_any_number_of_members_of_one_kind(lab, monkeypatch):
    lab.double_list([torch.ones(3)])

    def never(*_):
        raise AssertionError("it was resolved anew")

    monkeypatch.setattr(calls, "select", never)
    x = torch.arange(2.0)
    for group in ([x], [x, x, x + 1], (x, x + 1)):
        assert [one.tolist() for one in lab.double_list(group)] == [(2 * one).tolist() for one in group]
    for group in ([], [x.half()], [x, x.half()], [x, x.expand(2, 2)]):
        with pytest.raises(AssertionError, match="resolved anew"):
            lab.double_list(group)


def test_a_list_of_several_kinds_leaves_no_entry(lab):
    for group in ([], [torch.ones(2), torch.ones(2).half()]):
        assert len(lab.double_list(group)) == len(group)
    assert not table_of(lab.double_list)


def test_without_pytorchs_guard_every_call_is_slow_and_right(lab, monkeypatch):
    monkeypatch.setattr(guards, "TensorGuards", None)
    for state in (requires_grad, vmap, negative_view, dispatch_mode):
        state(lab.double)
    assert torch.equal(lab.double(torch.ones(3)), torch.full((3,), 2.0))
    assert not table_of(lab.double)


@pytest.mark.gpu
def test_second_device(lab):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    warm(lab.double, torch.ones(3, device="cuda:0"))
    assert lab.double(torch.ones(3, device="cuda:1")).device == torch.device("cuda", 1)


def test_gradient_of_a_cut_graph_is_refused(lab):
    """Plain PyTorch that detaches: an error, on the first call and on the fast path."""
    tilegym.register_impl("lab.double", "plain", composite=True)(lambda x: x.detach() * 2)
    for _ in range(3):
        with pytest.raises(tilegym.errors.GradientError, match="cut from the graph"):
            lab.double(torch.ones(3, requires_grad=True))


def test_explicit_kernel_without_backward_is_refused_at_forward_time(lab):
    warm(lab.double, torch.ones(3))
    with pytest.raises(NoImplementationError, match="no backward"):
        lab.double(torch.ones(3, requires_grad=True), backend="kernel")
    with pytest.raises(NoImplementationError, match="cannot see through its kernels"):
        torch.vmap(lambda x: lab.double(x, backend="kernel"))(torch.ones(2, 3))


def test_nothing_piles_up_when_calls_are_resolved_again(site):
    site.backend("a", "", {"softmax": "return x"})
    site.backend("b", "", {"softmax": "return x"})
    sizes = []
    for _ in range(5):
        for name in "ab":
            tilegym.set_backend(name)
            tilegym.ops.softmax(torch.ones(2, 3))
        sizes.append(len(linecache.cache))
    assert sizes[-1] == sizes[0]
    assert len(tilegym.ops.softmax.__tilegym_op__.table) == 1
