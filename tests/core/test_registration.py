"""`@dispatch` and `@register_impl` in scripts and in files, the functions they make, and what outranks what."""

from __future__ import annotations

import functools
import gc
import inspect
import pydoc
import typing
from typing import Any

import pytest
import torch
from torch import Tensor

import tilegym
from tests.core.conftest import backends, implementation
from tilegym.backend import get_available_triton_backend, print_registry_info
from tilegym.errors import NoImplementationError, RegistrationError, UnknownOpError
from tilegym.ops import softmax

X = torch.ones(2, 3)


def declare(name: str = "inline"):
    @tilegym.dispatch(name)
    def inline(x: Tensor, factor: float = 2.0, *, mode: str | None = None, **kwargs: Any) -> Tensor:
        """Multiplies."""

    return inline


def implement(op: str, backend: str, answer: object) -> None:
    tilegym.register_impl(op, backend)(lambda x, factor=2.0, mode=None: answer)


# -- an op's function -----------------------------------------------------------------------------------------------


def test_op_has_the_declared_signature_with_backend_added():
    op = declare()
    assert str(inspect.signature(op)) == (
        "(x: 'Tensor', factor: 'float' = 2.0, *, mode: 'str | None' = None, backend: 'str | None' = None, "
        "**kwargs: 'Any') -> 'Tensor'"
    )
    assert (op.__name__, op.__qualname__, op.__doc__) == ("inline", "declare.<locals>.inline", "Multiplies.")
    assert op.__module__ == __name__
    assert typing.get_type_hints(op) == {
        "x": Tensor,
        "factor": float,
        "mode": str | None,
        "backend": str | None,
        "kwargs": Any,
        "return": Tensor,
    }
    assert "Multiplies" in inspect.getsource(op)
    assert "inline(x: 'Tensor', factor: 'float' = 2.0, *, mode:" in pydoc.render_doc(op, renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "silu_and_mul"])
def test_cores_ops_show_their_contracts(name):
    op = getattr(tilegym.ops, name)
    parameters = inspect.signature(op).parameters
    assert parameters["backend"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["backend"].default is None
    assert "Args:" in inspect.getdoc(op)
    assert op.contract is not None
    assert inspect.signature(op.contract.canonical).return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda op: op(), "missing 1 required positional argument: 'x'"),
        (lambda op: op(X, 1, 2), "takes from 1 to 2 positional arguments but 3"),
        (lambda op: op(X, x=X), "multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments_are_pythons_own_errors(call, message):
    op = declare()
    implement("inline", "mine", "answer")
    with pytest.raises(TypeError, match=message):
        call(op)


@pytest.mark.parametrize("parameter", ["check", "run", "entries", "op", "table", "self", "backends"])
def test_parameters_may_have_any_public_name(parameter):
    declared: dict[str, Any] = {}
    exec(f"def named(x, {parameter}=None): pass", declared)  # noqa: S102 - a parameter of that name
    op = tilegym.dispatch("named")(declared["named"])
    exec(f"def implementation(x, {parameter}): return {parameter}", declared)  # noqa: S102 - as above
    tilegym.register_impl("named", "mine")(declared["implementation"])
    assert [op(X, 5, backend="mine") for _ in range(3)] == [5, 5, 5]


def test_positional_only_parameters_stay_so():
    @tilegym.dispatch("marked")
    def marked(x, /, y=1, *, z=2):
        """Has every kind of mark."""

    tilegym.register_impl("marked", "mine")(lambda x, y, z: (y, z))
    assert str(inspect.signature(marked)) == "(x, /, y=1, *, z=2, backend: 'str | None' = None)"
    for _ in range(3):
        assert marked(X, 5, z=6, backend="mine") == (5, 6)
    with pytest.raises(TypeError, match="positional-only"):
        marked(x=X, backend="mine")


@pytest.mark.parametrize("name", ["", "two words", "_private", "a.b", 3])
def test_bad_op_names(name):
    with pytest.raises(RegistrationError, match="cannot name an op: expected a public Python identifier"):
        tilegym.dispatch(name)


@pytest.mark.parametrize("name", ["softmax_fwd", "mine_bwd", "mine_out"])
def test_names_of_the_torch_ops_behind_an_op_are_refused(name):
    with pytest.raises(RegistrationError, match="torch ops behind an op"):
        tilegym.dispatch(name)(lambda x: None)


@pytest.mark.parametrize("declared", [lambda *xs: None, lambda _x: None])
def test_an_op_names_its_parameters(declared):
    with pytest.raises(RegistrationError, match="an op names each of its parameters"):
        tilegym.dispatch("nameless")(declared)


# -- a script's op and implementations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer", [None, 3, "text", [1, 2], {"a": 1}, (X, 2), X], ids=lambda value: type(value).__name__
)
def test_inline_op_with_two_implementations_and_any_result(site, answer):
    site.backend("declared")

    @tilegym.dispatch("inline")
    def inline(x, factor=2.0):
        """Neither annotated nor implemented here."""

    tilegym.register_impl("inline", "declared")(lambda x, factor=2.0: answer)
    tilegym.register_impl("inline", backend="adhoc")(lambda x, factor=2.0: ("adhoc", factor))
    for x in (X, X, None, 3, [X, X]):
        assert inline(x) is answer
        assert inline(x, 5, backend="adhoc") == ("adhoc", 5)
    assert tilegym.get_registry_info()["inline"] == ["adhoc", "declared"]
    assert tilegym.ops.inline is inline
    assert "inline" in dir(tilegym.ops)


def test_adhoc_backend_is_never_in_auto():
    op = declare()
    implement("inline", "ad_hoc", "mine")
    with pytest.raises(NoImplementationError, match="no installed backend implements it"):
        op(X)
    assert op(X, backend="ad-hoc") == "mine"
    with tilegym.use_backend("ad_hoc"):
        assert op(X) == "mine"
    assert "ad-hoc" in tilegym.get_available_backends()
    assert tilegym.explain(op, X).chosen is None


@pytest.mark.parametrize("script_first", [True, False])
def test_script_outranks_a_file_whichever_comes_first_and_at_once(site, script_first):
    site.backend("acme", "aliases=('ac',)", {"softmax": "return 'file'"})
    if not script_first:
        assert [softmax(X) for _ in range(3)] == ["file"] * 3
    tilegym.register_impl("softmax", backend="ac")(lambda x: "script")
    assert [softmax(X) for _ in range(3)] == ["script"] * 3
    assert tilegym.explain("softmax", X).candidates[0].implementation.origin == "script"
    tilegym.register_impl("softmax", backend="acme")(lambda x: "script 2")
    assert softmax(X) == "script 2"
    assert tilegym.get_registry_info()["softmax"] == ["acme"]


def test_scripts_op_outranks_a_file_of_the_same_name(site):
    site.backend("acme", "", {"softmax": "return 'file'"})
    before = tilegym.ops.softmax
    assert [before(X) for _ in range(3)] == ["file"] * 3

    @tilegym.dispatch("softmax")
    def mine(x, temperature):
        """Another op."""

    assert tilegym.ops.softmax is mine
    with pytest.raises(NoImplementationError, match=r"cannot implement softmax: it must take \(x, temperature\)"):
        mine(X, 2.0)
    tilegym.register_impl("softmax", "acme")(lambda x, temperature: temperature)
    assert mine(X, 2.0) == 2.0


def test_an_op_that_was_declared_again_still_follows_every_change(site):
    site.backend("a", "priority=2")
    site.backend("b", "priority=1")
    first = declare()
    implement("inline", "a", "a")
    assert [first(X) for _ in range(3)] == ["a"] * 3
    declare()
    gc.collect()
    implement("inline", "b", "b")
    tilegym.set_backend("b")
    assert first(X) == "b"


@pytest.mark.parametrize("backend", ["auto", "Two Words", "-x", "", "1x", 3])
def test_bad_backend_names(backend):
    with pytest.raises(RegistrationError, match=r"cannot name a backend|must be a string, got 3"):
        tilegym.register_impl("softmax", backend)


@pytest.mark.parametrize("function", [3, "text", torch.relu])
def test_what_cannot_implement(function):
    with pytest.raises(RegistrationError, match="cannot implement softmax"):
        tilegym.register_impl("softmax", "mine")(function)


def test_any_callable_with_a_signature_can_implement():
    class Model:
        def __call__(self, x):
            return "model"

    tilegym.register_impl("softmax", "model")(Model())
    tilegym.register_impl("softmax", "partial")(functools.partial(lambda x, y: y, y="partial"))
    for name in ("model", "partial"):
        assert [softmax(X, backend=name) for _ in range(3)] == [name] * 3


def test_contract_breaking_signature_is_told_when_it_is_asked_for(site):
    site.backend("good", "priority=1", {"softmax": "return 'good'"})
    tilegym.register_impl("softmax", "bad")(lambda x, y: None)
    with pytest.raises(NoImplementationError, match=r"bad.*cannot implement softmax: it must take \(x\)") as caught:
        softmax(X, backend="bad")
    assert isinstance(caught.value.__cause__, RegistrationError)
    assert softmax(X) == "good"


def test_arguments_reach_implementations_whose_parameters_stand_elsewhere():
    op = declare()
    tilegym.register_impl("inline", "mine")(lambda x, *, mode, factor: (factor, mode))
    assert [op(X, 3.0, mode="m", backend="mine") for _ in range(3)] == [(3.0, "m")] * 3


def test_listings(capsys):
    declare()
    implement("inline", "mine", "answer")
    print_registry_info()
    assert "inline: mine\n" in capsys.readouterr().out
    assert tilegym.get_available_backends_for_op("inline") == ["mine"]
    assert tilegym.has_backend_impl("inline", "mine")
    assert not tilegym.has_backend_impl("inline", "other")
    assert get_available_triton_backend() == "oait"


# -- files ----------------------------------------------------------------------------------------------------------

OWN_OP = """
from tilegym import dispatch

@dispatch("halve")
def halve(x):
    "x / 2."
"""


def pack(name: str = "halves") -> str:
    return (
        f"@hookimpl\ndef tilegym_op_packs():\n    return [OpPack(name={name!r}, package='{name}_dist.specs')]\n"
        f"@hookimpl\ndef tilegym_impl_packs():\n"
        f"    return [ImplPack(backend='acme', package='{name}_dist.ops', op_pack={name!r})]\n"
    )


@pytest.fixture
def halves(site):
    """An op pack with one op, implemented by a backend of another distribution."""
    site.backend("acme")
    files = {
        "specs/halve.py": OWN_OP,
        "specs/_private.py": "raise AssertionError",
        "ops/halve.py": implementation("halves.halve", "acme", "return x / 2"),
    }
    site.install("halves-dist", pack(), files)
    return site


def test_op_pack_from_outside(halves):
    assert "halves" in dir(tilegym.ops)
    assert dir(tilegym.ops.halves) == ["halve"]
    assert torch.equal(tilegym.ops.halves.halve(X), X / 2)
    assert tilegym.get_registry_info()["halves.halve"] == ["acme"]
    with tilegym.use_backend(**{"halves.halve": "acme"}):
        assert torch.equal(tilegym.ops.halves.halve(X), X / 2)
    with pytest.raises(UnknownOpError, match=r"no op named 'halves.halv'. Did you mean 'halves.halve'\?"):
        _ = tilegym.ops.halves.halv
    assert not hasattr(tilegym.ops.halves, "_private")


def test_a_file_that_registers_nothing(site):
    site.backend("empty", "", {"softmax": ""})
    (site.path / "empty_dist" / "ops" / "softmax.py").write_text("")
    with pytest.raises(NoImplementationError, match="registers nothing for op 'softmax': decorate a function"):
        softmax(X, backend="empty")


def test_a_spec_file_that_declares_nothing(site):
    site.install("halves-dist", pack(), {"specs/halve.py": "", "ops/__init__.py": ""})
    with pytest.raises(
        RegistrationError, match=r"halve.py defines no op 'halve': decorate it with @dispatch\('halve'\)"
    ):
        _ = tilegym.ops.halves.halve
    assert "softmax" in dir(tilegym.ops)


def test_one_package_may_serve_two_backends(site):
    both = backends("name='one', priority=1", "name='two'")
    packs = "@hookimpl\ndef tilegym_impl_packs():\n    return [{}]\n".format(
        ", ".join(f"ImplPack(backend={name!r}, package='both_dist.ops')" for name in ("one", "two"))
    )
    site.install("both-dist", both + packs, {"ops/softmax.py": implementation("softmax", "one", "return 'both'")})
    with tilegym.trace() as calls:
        assert softmax(X, backend="two") == "both"
        assert softmax(X, backend="one") == "both"
    assert [call.backend for call in calls] == ["two", "one"]


# -- re-entrancy ----------------------------------------------------------------------------------------------------


def test_an_implementation_may_call_other_ops(site):
    outer = declare("outer")
    declare("inner")
    implement("inner", "mine", 5)
    tilegym.register_impl("outer", "mine")(lambda x, factor, mode: tilegym.ops.inner(x, backend="mine") + 1)
    assert [outer(X, backend="mine") for _ in range(3)] == [6, 6, 6]


def test_an_implementation_may_call_its_op_on_another_backend(site):
    op = declare("outer")
    implement("outer", "base", 5)
    tilegym.register_impl("outer", "mine")(lambda x, factor, mode: op(x, backend="base") + 1)
    assert [op(X, backend="mine") for _ in range(3)] == [6, 6, 6]


def test_an_implementation_that_calls_itself_is_told(site):
    op = declare("outer")
    tilegym.register_impl("outer", "mine")(lambda x, factor, mode: op(x, backend="mine"))
    for _ in range(3):
        with pytest.raises(RegistrationError, match="the implementation of outer by backend 'mine' calls outer again"):
            op(X, backend="mine")


def test_two_files_for_one_op_and_backend_serve_neither(site):
    site.backend("acme", "priority=2", {"softmax": "return 'acme'"})
    site.backend("other", "priority=1", {"softmax": "return 'other'"})
    assert softmax(X) == "acme"
    source = "@hookimpl\ndef tilegym_impl_packs():\n    return [ImplPack(backend='acme', package='aaa_intruder.ops')]\n"
    site.install("aaa-intruder", source, {"ops/softmax.py": implementation("softmax", "acme", "return 'intruder'")})
    assert softmax(X) == "other"
    with pytest.raises(NoImplementationError, match=r"claimed by packages aaa_intruder\.ops, acme_dist\.ops"):
        softmax(X, backend="acme")
