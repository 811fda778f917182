"""`explain`, `resolve`, `trace` and the log: what they say is what happens."""

from __future__ import annotations

import io
import json
import logging
import threading

import pytest
import torch
from rich.console import Console

import tilegym
from tests.core.conftest import PLUGIN
from tilegym.errors import ArgumentTypeError, BackendUnavailableError, NoImplementationError, ShapeError, UnknownOpError
from tilegym.ops import softmax

X = torch.ones(2, 3)


@pytest.fixture
def many(site):
    """One backend of each state."""
    site.backend("absent", "priority=9, probe=lambda device: 'no driver'", {"softmax": "return 'absent'"})
    site.backend("broken", "priority=8", {"softmax": "return 'broken'"})
    (site.path / "broken_dist" / "ops" / "softmax.py").write_text("raise ImportError('no toolchain')")
    site.backend("picky", "priority=7", {"softmax": "return 'picky'"})
    tilegym.register_impl("softmax", "picky", supports=lambda x: "too small")(lambda x: "picky")
    site.backend("fine", "priority=6", {"softmax": "return 'fine'"})
    site.backend("shy", "priority=5, auto=False", {"softmax": "return 'shy'"})
    site.backend("other", "priority=4")
    return site


# backend → discovered, usable, importable, supports, reason
STATES = {
    "absent": (True, False, False, False, "no driver"),
    "broken": (True, True, False, False, "its implementation failed to load: ImportError: no toolchain"),
    "picky": (True, True, True, False, "too small"),
    "fine": (True, True, True, True, None),
    "shy": (True, True, True, True, None),
}


def test_explain_tells_each_candidates_state_and_launches_nothing(many):
    told = tilegym.explain("softmax", X)
    assert {
        one.backend: (one.discovered, one.usable, one.importable, one.supports, one.reason) for one in told.candidates
    } == STATES
    assert (told.op, told.preference, told.origin, told.chosen) == ("softmax", "auto", "auto", "fine")
    assert told.reason == (
        "auto: first in order; not absent: no driver; not broken: its implementation failed to load: "
        "ImportError: no toolchain; not picky: too small"
    )
    assert softmax(X) == told.chosen


def test_explanation_as_data_text_and_table(many):
    told = tilegym.explain(softmax, X, backend="fine")
    data = json.loads(json.dumps(told.to_dict()))
    assert (data["chosen"], data["origin"], data["reason"]) == ("fine", "call", "asked for by call")
    assert data["candidates"][1] == {
        "backend": "broken",
        "discovered": True,
        "usable": True,
        "importable": False,
        "supports": False,
        "reason": "its implementation failed to load: ImportError: no toolchain",
    }
    lines = str(told).splitlines()
    assert lines[0] == "softmax: fine (asked for by call)"
    assert lines[1] == "  absent  no driver"
    assert lines[4] == "  fine    takes this call"
    out = io.StringIO()
    Console(file=out, width=120).print(told)
    assert "│ picky" in out.getvalue()
    assert "[" not in out.getvalue()


@pytest.mark.parametrize(
    ("backend", "chosen", "reason"),
    [
        ("absent", None, "softmax: backend 'absent' cannot run here: no driver"),
        ("broken", None, "softmax: backend 'broken': its implementation failed to load: ImportError: no toolchain"),
        ("picky", None, "softmax: backend 'picky' refuses this call: too small."),
        ("shy", "shy", "asked for by call"),
    ],
)
def test_explain_of_a_named_backend_says_what_the_call_does(many, backend, chosen, reason):
    told = tilegym.explain("softmax", X, backend=backend)
    assert (told.chosen, told.reason) == (chosen, reason)
    if chosen is None:
        with pytest.raises((BackendUnavailableError, NoImplementationError)):
            softmax(X, backend=backend)


def test_explain_lists_the_preferred_backend_though_it_lacks_the_op_and_leaves_the_warning_to_the_call(many):
    with tilegym.use_backend("other"):
        told = tilegym.explain("softmax", X)
        assert (told.preference, told.origin, told.chosen) == ("other", "scope", "fine")
        assert told.candidates[-1].reason == "it has no implementation of softmax"
        assert not told.candidates[-1].discovered
        assert told.reason.startswith("backend 'other', preferred by scope, does not serve this call")
        with pytest.warns(tilegym.errors.FallbackWarning):
            assert softmax(X) == "fine"


def test_explain_without_arguments_and_of_wrong_ones(many):
    assert tilegym.explain("softmax").chosen == "picky"  # whose refusal depends on the call
    with pytest.raises(ShapeError, match="x must have at least 1 dimension"):
        tilegym.explain("softmax", torch.tensor(1.0))
    with pytest.raises(ArgumentTypeError, match=r"softmax: missing a required argument: 'x'; its signature is \(x: "):
        tilegym.explain("softmax", use_tma=True)
    with pytest.raises(ArgumentTypeError, match="expected an op or its name, got <built-in function len>"):
        tilegym.explain(len)
    with pytest.raises(UnknownOpError, match=r"no op named 'sofmax'. Did you mean 'softmax'\?"):
        tilegym.explain("sofmax")


def test_resolve_is_the_plain_function_that_a_call_runs(many):
    assert tilegym.resolve("softmax", X)(X) == "fine"
    assert tilegym.resolve(softmax, backend="shy")(X) == "shy"
    with tilegym.use_backend("shy"):
        assert tilegym.resolve("softmax", X)(X) == "shy"
    with pytest.raises(BackendUnavailableError, match="no driver"):
        tilegym.resolve("softmax", backend="absent")
    with pytest.raises(NoImplementationError, match="too small"):
        tilegym.resolve("softmax", X, backend="picky")


# -- tracing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain(site):
    site.backend("plain", "", {"softmax": "return torch.softmax(x, -1)"})
    return site


def warm():
    for _ in range(3):
        softmax(X)
    assert softmax.__tilegym_op__.table


def test_trace_records_each_call(plain):
    warm()
    with tilegym.trace() as calls:
        softmax(X)
        softmax(X.half(), backend="plain")
        with tilegym.trace() as inner:
            softmax(X)
    softmax(X)
    assert [(call.op, call.backend, call.reason) for call in calls] == [
        ("softmax", "plain", "auto: first in order"),
        ("softmax", "plain", "asked for by call"),
        ("softmax", "plain", "auto: first in order"),
    ]
    assert [call.inputs for call in calls[:2]] == [(((2, 3), "float32", "cpu"),), (((2, 3), "float16", "cpu"),)]
    assert all(0 < call.seconds < 60 for call in calls)
    assert inner == calls[2:]


def test_trace_costs_nothing_when_it_is_over(plain):
    warm()
    with tilegym.trace():
        softmax(X)
        assert not softmax.__tilegym_op__.table
    warm()


def test_trace_is_of_this_thread_alone(plain):
    with tilegym.trace() as calls:
        other = threading.Thread(target=softmax, args=(X,))
        other.start()
        other.join()
    assert calls == []


def test_trace_leaves_no_event_of_a_call_that_raised(plain):
    with tilegym.trace() as calls, pytest.raises(ShapeError):
        softmax(torch.tensor(1.0))
    assert calls == []


LISTENER = """
events = []

@hookimpl
def tilegym_on_dispatch(event):
    events.append(event)
    {then}
"""


@pytest.mark.parametrize(
    ("then", "logged"),
    [
        ("", None),
        ("1 / 0", "ZeroDivisionError"),
        ("exit(3)", "SystemExit: 3"),
        ("import tilegym, torch; tilegym.ops.softmax(torch.ones(1))", None),
    ],
    ids=["fine", "raises", "exits", "calls an op"],
)
def test_listeners_of_plugins_hear_every_thread_while_somebody_traces(plain, caplog, then, logged):
    plain.install("ear-dist", LISTENER.format(then=then), header=PLUGIN)
    softmax(X)
    with tilegym.trace() as calls, caplog.at_level(logging.ERROR, logger="tilegym"):
        assert torch.equal(softmax(X), torch.softmax(X, -1))
        other = threading.Thread(target=softmax, args=(X,))
        other.start()
        other.join()
    import ear_dist.plugin

    assert [event.op for event in ear_dist.plugin.events] == ["softmax", "softmax"]
    assert ear_dist.plugin.events[0] == calls[0]
    if logged is None:
        assert caplog.text == ""
    else:
        assert (
            "plugin 'ear-dist' (ear_dist.plugin) of distribution ear-dist 1.0: its tilegym_on_dispatch failed"
            in caplog.text
        )
        assert logged in caplog.text
