"""The search: what is asked, tried, left out and found, on an op whose configurations say how long they take."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass

import cuda.tile as ct
import pytest
import torch

import tilegym
from tilegym.benchmarking import suite
from tilegym.benchmarking.cases import cases
from tilegym.benchmarking.plan import Plan
from tilegym.benchmarking.suite import Options
from tilegym.benchmarking.timing import Timing
from tilegym.contract import Sample, TensorSpec
from tilegym_cutile import tuning
from tilegym_cutile.runtime import ARCHITECTURES
from tilegym_cutile.search import Failed, Found, Limits, search
from tilegym_cutile.tuning import tuned

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    ms: tuple[float, ...]
    """How long it takes, the first time, the second ..."""
    does: str = "right"


class Lab:
    """Backend `lab`: softmax with one tuned function forward and one backward, timed by what their answers say."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(tuning, "_functions", dict(tuning._functions))
        monkeypatch.setattr(suite, "time_in_turns", self.time_in_turns)
        self.plain, self.space, self.times, self.ran, self.seconds = Config(ms=(100.0,)), [], {}, [], []
        target = ARCHITECTURES["sm_90"]

        @tuned("lab", space=lambda: self.space, bucketed=("m",))
        def heuristic(m, n, target):
            return self.plain

        @tuned("lab_backward", space=lambda: self.space)
        def backward_heuristic(n, target):
            return self.plain

        @tilegym.register_impl("softmax", "lab")
        def softmax(x):
            return self.run(heuristic(*x.shape, target), torch.softmax(x.float(), -1).to(x.dtype))

        @tilegym.register_backward("softmax", "lab")
        def softmax_backward(grad_output, output):
            dy, y = grad_output.float(), output.float()
            dx = y * (dy - (dy * y).sum(-1, keepdim=True))
            return self.run(backward_heuristic(output.shape[-1], target), dx.to(output.dtype))

    def run(self, config, result):
        self.ran.append(config)
        if config.does == "fails" or (config.does == "fails when forced" and tuning._forced):
            raise RuntimeError("it does not compile")
        if config.does == "dawdles":
            time.sleep(0.51)  # 5 times the heuristic's own are too many
        return result * 1.1 if config.does == "wrong" else result

    def time_in_turns(self, groups, device, *, seconds, graph, around):
        self.seconds.append(seconds)
        return {name: self.timing(calls, around(name)) for name, calls in groups.items()}

    def timing(self, calls, context):
        with context:
            calls[0]()
        config = self.ran[-1]
        number = self.times[config] = self.times.get(config, -1) + 1
        median = config.ms[min(number, len(config.ms) - 1)]
        return Timing(median=median, low=median, high=median)

    def search(self, *shapes, directions=("forward",), limits=None, **options):
        samples = [Sample(name=f"{m}x{n}", args={"x": TensorSpec(shape=(m, n))}) for m, n in shapes]
        found = cases("softmax", torch.float32, samples=samples)
        entries = tuple((case, direction, ("lab",)) for case in found for direction in directions)
        planned = Plan(entries=entries, left_out={})
        return [*search(planned, Options(device=CPU), limits or Limits(), **options)]


@pytest.fixture
def lab(monkeypatch):
    yield Lab(monkeypatch)
    tuning.reread()


def test_the_fastest_right_configuration_is_found(lab):
    fast, wrong, fails, slow = (
        Config(ms=(ms,), does=does)
        for ms, does in [(75.0, "right"), (50.0, "wrong"), (25.0, "fails"), (450.0, "right")]
    )
    dawdles = Config(ms=(5.0,), does="dawdles")
    fair = Config(ms=(80.0,))
    lab.space = [slow, wrong, fast, fails, dawdles, fair]
    [found] = lab.search((4, 8))
    assert isinstance(found, Found)
    assert (found.best, found.best_ms, found.plain_ms, found.tried, found.better) == (fast, 75.0, 100.0, 6, True)
    assert {config: reason.split(": ")[0] for config, reason in found.failures.items()} == {
        wrong: "wrong",
        fails: "failed",
        dawdles: "too slow",
    }
    assert "it does not compile" in found.failures[fails]
    assert found.ratios == {slow: 4.5, fast: 0.75, fair: 0.8}
    assert lab.seconds == [0.2] * 2 + [0.8]
    assert lab.times == {lab.plain: 2, slow: 0, fast: 1, fair: 0}


def test_what_counts_is_the_ratio_to_the_heuristics_own_in_the_same_rounds(lab):
    """The device slows down to half of its speed after the first few configurations."""
    lab.plain = Config(ms=(100.0, 100.0, 200.0))
    early, late = Config(ms=(90.0, 180.0)), Config(ms=(140.0,))
    lab.space = [early, *(Config(ms=(150.0 + number,)) for number in range(7)), late]
    [found] = lab.search((4, 8))
    assert (found.best, found.plain_ms, found.best_ms, found.tried) == (late, 200.0, 140.0, 9)
    assert (found.ratios[early], found.ratios[late]) == (0.9, 0.7)


@pytest.mark.parametrize(
    "times", [(99.5,), (50.0, 100.0), (100.0, 100.0), (125.0,)], ids=["noise", "luck", "equal", "slower"]
)
def test_what_is_not_clearly_faster_twice_is_not_better(lab, times):
    lab.space = [Config(ms=times)]
    [found] = lab.search((4, 8))
    assert (found.best, found.better, found.tried) == (lab.plain, False, 1)
    assert found.best_ms == found.plain_ms == 100.0


def test_a_heuristics_own_that_fails_loses_to_what_works(lab):
    good = Config(ms=(150.0,))
    lab.plain, lab.space = Config(ms=(100.0,), does="fails when forced"), [good]
    [found] = lab.search((4, 8))
    assert (found.best, found.plain_ms, found.best_ms) == (good, math.inf, 150.0)


def test_each_question_is_tuned_once(lab):
    lab.space = [Config(ms=(1.0,))]
    results = lab.search((4, 8), (3, 8), (4, 9), directions=("forward", "backward"))
    assert [(one.case.sample.name, one.direction, one.question.function.name, one.question.key) for one in results] == [
        ("3x8", "forward", "lab", "m=4 n=8"),
        ("3x8", "backward", "lab_backward", "n=8"),
        ("4x9", "forward", "lab", "m=4 n=9"),
        ("4x9", "backward", "lab_backward", "n=9"),
    ]


def test_a_call_that_is_wrong_as_it_is_is_not_tuned(lab):
    lab.plain, lab.space = Config(ms=(1.0,), does="wrong"), [Config(ms=(1.0,))]
    [failed] = lab.search((4, 8))
    assert isinstance(failed, Failed)
    assert failed.reason.startswith("wrong: output: norm error")
    assert set(lab.ran) == {lab.plain}


def test_a_call_whose_arguments_do_not_fit_is_told_and_the_others_are_tuned(lab, monkeypatch):
    def large(tensors, *_):
        if tensors["x"].shape == (4, 8):
            raise torch.OutOfMemoryError
        return [dict(tensors)]

    monkeypatch.setattr(suite, "rotation", large)
    lab.space = [Config(ms=(1.0,))]
    failed, found = lab.search((4, 8), (4, 9))
    assert isinstance(failed, Failed)
    assert failed.reason == "not run: cpu has too little memory for its arguments"
    assert (found.case.sample.name, found.better) == ("4x9", True)


def test_limits_and_progress(lab, monkeypatch):
    seconds, seen = [], []
    monkeypatch.setattr(ct, "compiler_timeout", lambda limit: nullcontext(seconds.append(limit)))
    lab.space = [Config(ms=(3.0 + number,)) for number in range(5)]
    limits = Limits(configs=2, compile_seconds=7.0)
    [found] = lab.search((4, 8), limits=limits, tried=lambda question, *numbers: seen.append((question.key, *numbers)))
    assert found.tried == 2
    assert seen == [("m=4 n=8", 2, 2)]
    assert set(seconds) == {7.0}
    seen.clear()
    lab.space = [Config(ms=(3.0 + number,)) for number in range(9)]
    lab.search((4, 8), tried=lambda question, *numbers: seen.append(numbers))
    assert seen == [(7, 9), (9, 9)]


def test_what_was_found_not_to_compile_ahead_is_not_launched(lab):
    bad, good = Config(ms=(1.0,)), Config(ms=(2.0,))
    asked = []

    def why_not(question, config):
        asked.append((question.key, config))
        return "it takes too long" if config == bad else None

    lab.space = [bad, good]
    [found] = lab.search((4, 8), why_not=why_not)
    assert asked == [("m=4 n=8", bad), ("m=4 n=8", good)]
    assert (found.best, found.tried, found.failures) == (good, 2, {bad: "it takes too long"})
    assert bad not in lab.ran


def test_nothing_stays_forced(lab):
    lab.space = [Config(ms=(1.0,))]
    lab.search((4, 8))
    assert tuning._forced == {}
    assert tuning._observers == []
    with pytest.raises(KeyboardInterrupt), tuning.forced(tuning._functions["lab"].question(4, 8, None), lab.space[0]):
        raise KeyboardInterrupt
    assert tuning._forced == {}
