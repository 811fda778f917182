"""Which backend a call runs on: call > scope > set_backend > TILEGYM_BACKEND > auto; what if it cannot."""

from __future__ import annotations

import warnings

import pytest
import torch

import tilegym
from tilegym import availability
from tilegym.errors import (
    ArgumentTypeError,
    BackendUnavailableError,
    EnvironmentWarning,
    FallbackWarning,
    NoImplementationError,
    UnknownBackendError,
    UnknownOpError,
)
from tilegym.ops import rms_norm, softmax

X = torch.ones(2, 3)
NAME = "return 'BACKEND'"
BROKEN = "probe=lambda device: 'no driver'"


@pytest.fixture
def three(site):
    """Backends a, b and c, each of whose softmax returns the backend's name; `auto` takes a."""
    site.backend("a", "priority=30", {"softmax": NAME})
    site.backend("b", "priority=20, aliases=('bee', 'b_two')", {"softmax": NAME})
    site.backend("c", "priority=10", {"softmax": NAME})
    return site


def test_each_level_overrides_the_one_below(three, monkeypatch):
    assert (softmax(X), tilegym.get_current_backend()) == ("a", "auto")
    monkeypatch.setenv("TILEGYM_BACKEND", "b")
    three.reload()
    assert (softmax(X), tilegym.get_current_backend()) == ("b", "b")
    tilegym.set_backend("c")
    assert (softmax(X), tilegym.get_current_backend()) == ("c", "c")
    with tilegym.use_backend("b"):
        assert (softmax(X), tilegym.get_current_backend()) == ("b", "b")
        assert softmax(X, backend="a") == "a"
        assert softmax(X, backend="auto") == "a"
        with tilegym.use_backend("auto"):
            assert (softmax(X), tilegym.get_current_backend()) == ("a", "auto")
    assert softmax(X) == "c"
    tilegym.set_backend("auto")
    assert (softmax(X), tilegym.get_current_backend()) == ("b", "b")


def test_scopes_nest_per_op_and_end_with_an_exception(three):
    three.backend("d", "", {"softmax": NAME})

    @tilegym.dispatch("other")
    def other(x):
        """Returns the name of the backend."""

    for name in "bd":
        tilegym.register_impl("other", name)(lambda x, name=name: name)
    with tilegym.use_backend("b", softmax="c"):
        assert softmax(X) == "c"
        with tilegym.use_backend(softmax="a"):
            assert softmax(X) == "a"
            assert tilegym.get_current_backend() == "b"
        assert other(X) == "b"
        with tilegym.use_backend(other="d"):
            assert (softmax(X), other(X)) == ("c", "d")
        with tilegym.use_backend("d"):
            assert softmax(X) == "d"
        with pytest.raises(ZeroDivisionError), tilegym.use_backend("d"):
            raise ZeroDivisionError
        assert softmax(X) == "c"
    assert softmax(X) == "a"


def test_scope_as_decorator(three):
    @tilegym.use_backend("b")
    def inner(depth):
        return (softmax(X), *(inner(depth - 1) if depth else ()))

    assert inner(2) == ("b", "b", "b")
    assert inner.__name__ == "inner"
    assert softmax(X) == "a"


@pytest.mark.parametrize("kind", ["coroutine", "generator", "asynchronous generator"])
def test_scope_refuses_to_decorate_what_runs_after_it_ended(three, kind):
    async def coroutine():
        """Would run outside the scope."""

    def generator():
        yield

    async def asynchronous():
        yield

    function = {"coroutine": coroutine, "generator": generator}.get(kind, asynchronous)
    with pytest.raises(TypeError, match=r"with tilegym\.use_backend"):
        tilegym.use_backend("b")(function)


@pytest.mark.parametrize("name", ["b", "B", "bee", " bee ", "b-two", "b_two", "B_Two"])
def test_aliases_and_spellings(three, name):
    assert softmax(X, backend=name) == "b"
    with tilegym.use_backend(name):
        assert (softmax(X), tilegym.get_current_backend()) == ("b", "b")
    tilegym.set_backend(name)
    assert (softmax(X), tilegym.get_current_backend()) == ("b", "b")
    assert tilegym.is_backend_available(name)
    assert tilegym.has_backend_impl("softmax", name)


CHOOSERS = [tilegym.set_backend, tilegym.use_backend, lambda name: tilegym.use_backend(softmax=name)]


@pytest.mark.parametrize(
    "choose", [*CHOOSERS, tilegym.assert_backend_available], ids=["set", "use", "per-op", "assert"]
)
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bb", r"no installed distribution provides a backend 'bb'. Did you mean 'b'\? Known: .*\bb\b"),
        ("broken", "backend 'broken' cannot run here: no driver"),
        ("ghost", "comes with distribution tilegym-ghost, which is not installed; .*pip install ./tilegym-ghost"),
    ],
)
def test_choosing_what_cannot_be_had_is_a_value_error_with_the_reason(three, choose, name, reason):
    three.backend("broken", BROKEN)
    three.monkeypatch.setitem(availability._FIRST_PARTY, "ghost", "tilegym-ghost")
    with pytest.raises(ValueError, match=reason):
        choose(name)
    assert tilegym.get_current_backend() == "auto"


ASKERS = [
    tilegym.is_backend_available,
    lambda backend: tilegym.explain("softmax", torch.ones(2), backend=backend),
    lambda backend: tilegym.resolve("softmax", backend=backend),
    lambda backend: tilegym.has_backend_impl("softmax", backend),
    lambda backend: tilegym.ops.get_rms_norm_module(backend=backend),
]


@pytest.mark.parametrize("choose", [*CHOOSERS, *ASKERS])
def test_choosing_by_something_else_than_a_name(three, choose):
    with pytest.raises(TypeError, match="named by a string, got int"):
        choose(3)


@pytest.mark.parametrize("found", [False, True])
def test_a_backend_without_a_probe_can_run_where_there_is_a_device_of_its_types(three, monkeypatch, found):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found)
    three.backend("gpu", "device_types=('cuda',)", {"softmax": NAME})
    assert tilegym.is_backend_available("gpu") is found
    reason = "torch finds no cuda device here"
    if not found:
        with pytest.raises(ValueError, match=f"backend 'gpu' cannot run here: {reason}"):
            tilegym.set_backend("gpu")
    assert (reason in str(tilegym.explain("softmax", X))) is not found


def test_use_backend_needs_a_backend_and_known_ops(three):
    with pytest.raises(TypeError, match="needs a backend"):
        tilegym.use_backend()
    with pytest.raises(UnknownOpError, match=r"no op named 'softmx'. Did you mean 'softmax'\?"):
        tilegym.use_backend(softmx="a")


def test_usable_is_what_available_means(three):
    three.backend("broken", BROKEN, {"softmax": NAME})
    assert tilegym.get_available_backends() == ["a", "b", "c"]
    assert not tilegym.is_backend_available("broken")
    assert not tilegym.is_backend_available("unknown")
    assert tilegym.get_available_backends_for_op("softmax") == ["a", "b", "c"]
    assert tilegym.has_backend_impl("softmax", "broken")
    assert tilegym.get_registry_info()["softmax"] == ["a", "b", "broken", "c"]
    assert tilegym.get_registry_info()["rms_norm"] == []


# -- the environment's choice ---------------------------------------------------------------------------------------


def test_known_but_unusable_name_in_the_environment_warns_once_and_is_auto(three, monkeypatch):
    three.backend("broken", BROKEN, {"softmax": NAME})
    monkeypatch.setenv("TILEGYM_BACKEND", "broken")
    three.reload()
    with pytest.warns(EnvironmentWarning, match="TILEGYM_BACKEND=broken is ignored: .*no driver"):
        assert softmax(X) == "a"
    assert softmax(torch.ones(2)) == "a"  # a warning would be an error here
    assert tilegym.get_current_backend() == "auto"


def test_unknown_name_in_the_environment_is_an_error_with_the_nearest_name(three, monkeypatch):
    monkeypatch.setenv("TILEGYM_BACKEND", "be")
    three.reload()
    for use in (lambda: softmax(X), tilegym.get_current_backend):
        with pytest.raises(
            UnknownBackendError, match=r"environment variable TILEGYM_BACKEND: .*'be'. Did you mean 'bee'"
        ):
            use()
    assert softmax(X, backend="c") == "c"


# -- a choice that cannot take the call -----------------------------------------------------------------------------


def test_backend_of_the_call_never_falls_back(three):
    three.backend("broken", BROKEN, {"softmax": NAME})
    three.backend("none", "")
    three.backend("picky", "", {"softmax": NAME})
    tilegym.register_impl("softmax", "picky", supports=lambda x: "x is too small")(lambda x: x)
    refusals = {
        "unknown": (UnknownBackendError, "no installed distribution provides"),
        "broken": (BackendUnavailableError, "softmax: backend 'broken' cannot run here: no driver"),
        "none": (
            NoImplementationError,
            "'none' has no implementation of it; implemented by: a, b, broken, c, picky",
        ),
        "picky": (
            NoImplementationError,
            "refuses this call: x is too small.\n  a: takes it\n  b: takes it\n  c: takes it\n  broken: no driver",
        ),
    }
    for name, (error, message) in refusals.items():
        with pytest.raises(error, match=message):
            softmax(X, backend=name)
    with pytest.raises(ArgumentTypeError, match="backend must be a string, got int"):
        softmax(X, backend=3)


@pytest.fixture
def partial(three):
    """`b` is preferred, and takes no more than three columns."""
    three.backend("small", "priority=40", {"softmax": NAME})
    tilegym.register_impl("softmax", "small", supports=lambda x: "too wide" if x.shape[-1] > 3 else None)(
        lambda x: "small"
    )
    return three


WIDE = torch.ones(2, 4)


def test_preference_that_refuses_a_call_warns_once_per_op_and_another_serves(partial):
    tilegym.set_backend("small")
    with pytest.warns(FallbackWarning, match="'small', preferred by set_backend, does not serve .*: too wide") as told:
        assert softmax(WIDE) == "a"
    assert told[0].filename == __file__
    assert softmax(torch.ones(4)) == "a"
    assert softmax(WIDE) == "a"
    assert softmax(X) == "small"  # a refusal of one shape says nothing of another
    assert softmax(WIDE) == "a"


@pytest.mark.parametrize("preferred", [True, False])
def test_refusal_of_a_shape_leaves_later_shapes_alone(partial, preferred):
    if preferred:
        tilegym.set_backend("small")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        assert [softmax(x) for x in (WIDE, WIDE, X, WIDE, X, WIDE)] == ["a", "a", "small", "a", "small", "a"]


@pytest.mark.parametrize("variables", [{"TILEGYM_FALLBACK": "error"}, {"DISABLE_FALLBACK": "1"}])
def test_fallback_as_error(partial, monkeypatch, variables):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    partial.reload()
    with tilegym.use_backend("small"):
        with pytest.raises(NoImplementationError, match=r"preferred by scope, .*too wide.\n  a: takes it"):
            softmax(WIDE)
        assert softmax(X) == "small"


def test_fallback_in_silence(partial, monkeypatch):
    monkeypatch.setenv("TILEGYM_FALLBACK", "silent")
    partial.reload()
    with tilegym.use_backend("small"):
        assert softmax(WIDE) == "a"


def test_no_warning_of_a_fallback_when_nobody_serves(three):
    with (
        tilegym.use_backend("a"),
        pytest.raises(NoImplementationError, match="rms_norm: no installed backend implements"),
    ):
        rms_norm(X, None, None, 1e-6)


def test_fallback_backend_heads_the_order_of_the_op_but_not_that_of_auto(three):
    @tilegym.dispatch("which", fallback_backend="bee")
    def which(x):
        """Returns the name of the backend."""

    for name in ("a", "b"):
        tilegym.register_impl("which", name)(lambda x, name=name: name)
    assert which(X) == "a"
    with tilegym.use_backend("c"), pytest.warns(FallbackWarning, match="no implementation of which"):
        assert which(X) == "b"


# -- what a candidate declares --------------------------------------------------------------------------------------


def test_declared_dtypes(three):
    tilegym.register_impl("softmax", "a", dtypes=["float16"])(lambda x: "half")
    assert [softmax(X), softmax(X.half()), softmax(X)] == ["b", "half", "b"]
    with pytest.raises(NoImplementationError, match="it takes float16, got float32"):
        softmax(X, backend="a")


@pytest.mark.parametrize(("has", "served"), [((9, 0), "a"), ((10, 0), "a"), ((8, 9), "b")])
def test_least_compute_capability(three, monkeypatch, has, served):
    from tilegym import selection

    tilegym.register_impl("softmax", "a", min_capability=(9, 0))(lambda x: "a")
    op = softmax.__tilegym_op__
    call = selection.Call(canonical=(X,), tensors=(X,))
    monkeypatch.setattr(selection.Call, "device", torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: has)
    assert selection.select(op, None, call).implementation.backend == served
    if served == "b":
        reason = selection.examine(op, "a", call).reason
        assert reason == "it needs compute capability (9, 0), cuda:0 has (8, 9)"


@pytest.mark.parametrize(
    ("supports", "reason"),
    [
        (lambda x: f"no {x.dim()}-d tensors", "no 2-d tensors"),
        (lambda x: 1 / 0, "its supports failed: ZeroDivisionError"),
        (lambda x: False, "its supports must return None or a reason, got False"),
    ],
)
def test_supports_gives_the_reason(three, supports, reason):
    tilegym.register_impl("softmax", "a", supports=supports)(lambda x: "a")
    assert [softmax(X) for _ in range(3)] == ["b", "b", "b"]
    with pytest.raises(NoImplementationError, match=reason):
        softmax(X, backend="a")


def test_options_of_contract_and_implementation(three):
    tilegym.register_impl("softmax", "b", supports=lambda x: None)(lambda x, *, rows=1: f"b{rows}")
    assert softmax(X, use_chunked=True) == "a"
    assert softmax(X, rows=4) == "b4"
    assert softmax(X, backend="b") == "b1"
    with pytest.raises(TypeError, match=r"unknown option\(s\) rowz; options known: rows, use_chunked, use_multi_wave"):
        softmax(X, rowz=4)
    with pytest.raises(
        TypeError, match=r"backend 'a': it does not know the option\(s\) rows; options known: use_chunked"
    ):
        softmax(X, rows=4, backend="a")


def test_hints_are_checked_and_reach_only_who_wants_them(three):
    tilegym.register_impl("softmax", "b")(lambda x, *, use_tma: f"tma={use_tma}")
    assert [softmax(X, use_tma=True, backend="b") for _ in range(3)] == ["tma=True"] * 3
    assert softmax(X, use_tma=True, backend="a") == "a"
    for _ in range(2):
        with pytest.raises(ValueError, match="use_tma must be one of False, True, got 'yes'"):
            softmax(X, use_tma="yes")
    with pytest.raises(ValueError, match="use_chunked must be one of None, False, True, got 3"):
        softmax(X, use_chunked=3)
