"""Benchmarks: what is timed and counted, that nothing wrong is, and how long runs are kept within bounds."""

from __future__ import annotations

import math
import time
import weakref
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

import tilegym
from tilegym import registry
from tilegym.benchmarking import parts, script, suite, timing
from tilegym.benchmarking.cases import QUICK_BYTES, cases
from tilegym.benchmarking.ceilings import ceiling_of, measure_ceilings, unit_of
from tilegym.benchmarking.plan import plan
from tilegym.benchmarking.results import Ceilings
from tilegym.benchmarking.suite import Options, run
from tilegym.benchmarking.timing import Timing, rotation, time_calls, time_in_turns
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import (
    BackendUnavailableError,
    BenchmarkError,
    DtypeError,
    RegistrationError,
    UnknownBackendError,
    UnknownOpError,
    WrongAnswerError,
)
from tilegym.testing import materialize, measure
from tilegym.testing.accuracy import tensors_of

CPU = torch.device("cpu")
BF16 = torch.bfloat16
CEILINGS = Ceilings(copy_gbps=4.0, matmul_tflops={"bfloat16": 1.0})
SMALL, LARGE = (4, 8), (16, 8)
MOVED = {"4x8": 2 * 32 * 2, "16x8": 2 * 128 * 2}


@pytest.fixture
def softmax(monkeypatch):
    """The op, with two tiny benchmark cases, the larger one first."""
    op = tilegym.ops.softmax

    def tiny():
        for shape in (LARGE, SMALL):
            yield Sample(name=f"{shape[0]}x{shape[1]}", args={"x": TensorSpec(shape=shape)})

    monkeypatch.setattr(op, "contract", replace(op.contract, benchmarks=tiny))
    return op


@pytest.fixture
def clock(monkeypatch):
    """Calls take 2 ms each, whatever they do; the fixture's value is how many sets of calls were timed."""
    timed = []

    def time_in_turns(groups, device, **_):
        timed.extend([call() for call in calls] for calls in groups.values())
        return dict.fromkeys(groups, Timing(median=2.0, low=1.5, high=3.0))

    monkeypatch.setattr(suite, "time_in_turns", time_in_turns)
    return timed


def register(backend, function, **options):
    tilegym.register_impl("softmax", backend, **options)(function)


def rows(planned=None, **options):
    planned = planned or plan(["softmax"], [BF16], CPU)
    return list(run(planned, CEILINGS, Options(device=CPU, **options)))


def out_of_memory(x):
    raise torch.OutOfMemoryError


def cudaless(x):
    raise AssertionError("no CUDA")  # as torch raises it


def right(x):
    return torch.softmax(x, -1)


# -- cases ------------------------------------------------------------------------------------------------------------


def test_cases_come_from_the_contract_smallest_first():
    found = cases("rms_norm", BF16)
    assert [case.sample.name for case in found] == [
        case.name for case in sorted(tilegym.ops.rms_norm.contract.benchmarks(), key=lambda s: bytes_of(s, "rms_norm"))
    ]
    assert {"32768x1024", "16384x4096", "8192x8192"} <= {case.sample.name for case in found}
    first = found[0]
    assert (first.sample.name, first.dtype_name) == ("256x1024", "bfloat16")
    assert (first.forward.bytes, first.forward.flops) == (2 * (2 * 256 * 1024 + 1024), 4 * 256 * 1024)


def bytes_of(sample, op):
    contract = getattr(tilegym.ops, op).contract
    return contract.bytes_moved(*contract.canonical(**materialize(sample, dtype=BF16, device="meta")))


def test_backward_reads_what_was_saved_and_writes_the_gradients():
    size, weight, rstd = 2 * 256 * 1024, 2 * 1024, 4 * 256
    softmax, norm = cases("softmax", BF16)[0], cases("rms_norm", BF16)[0]
    assert softmax.backward.bytes == 3 * size  # output and its gradient in, one gradient out
    assert softmax.backward.flops == 2 * softmax.forward.flops
    assert norm.backward.bytes == (2 * size + weight + rstd) + (size + weight)  # no bias: it is not counted


def test_backward_flops_are_the_contracts_own_if_it_has_them(monkeypatch):
    contract = tilegym.ops.softmax.contract
    own = replace(contract, gradient=replace(contract.gradient, flops=lambda x: 7 * x.numel()))
    monkeypatch.setattr(tilegym.ops.softmax, "contract", own)
    assert cases("softmax", BF16)[0].backward.flops == 7 * 256 * 1024


@pytest.mark.parametrize("op", [name for name in registry.op_names() if "." not in name])
def test_quick_takes_small_cases(op):
    """Of every op: its own cases must do, with what its gradient reads and writes."""
    found = cases(op, BF16, quick=True)
    assert len(found) == 2
    if registry.get_op(op).contract.gradient is None:
        assert all(case.backward is None for case in found)
    else:
        assert all(case.backward.bytes > case.forward.bytes / 2 for case in found)
    assert all(case.forward.bytes <= QUICK_BYTES for case in found)
    assert cases(op, BF16)[-1].forward.bytes > 2**28


def test_quick_takes_the_smallest_if_none_is_small(softmax, monkeypatch):
    monkeypatch.setattr("tilegym.benchmarking.cases.QUICK_BYTES", 10)
    assert [case.sample.name for case in cases("softmax", BF16, quick=True)] == ["4x8"]


def test_a_contract_without_benchmarks_gives_its_largest_samples(monkeypatch):
    contract = replace(tilegym.ops.softmax.contract, benchmarks=None)
    monkeypatch.setattr(tilegym.ops.softmax, "contract", contract)
    shapes = [case.sample.args["x"].shape for case in cases("softmax", BF16)]
    assert len(shapes) == 3
    assert shapes[-1] == (1, 262144)


def test_other_samples_may_take_the_place_of_the_contracts(softmax):
    register("mine", right)
    samples = [Sample(name=f"{m}x8", args={"x": TensorSpec(shape=(m, 8))}) for m in (9, 3, 7, 5)]
    found = cases("softmax", BF16, samples=samples)
    assert [(case.sample.name, case.forward.bytes) for case in found] == [(f"{m}x8", 32 * m) for m in (3, 5, 7, 9)]
    planned = plan(["softmax"], [BF16], CPU, samples={"softmax": samples[:1]})
    assert [case.sample.name for case, _, _ in planned.entries] == ["9x8"]


def test_cases_of_what_has_none():
    tilegym.dispatch("lawless")(lambda x: x)
    with pytest.raises(RegistrationError, match="'lawless' has no contract"):
        cases("lawless", BF16)
    with pytest.raises(DtypeError, match="'softmax' takes bfloat16, float16, float32, not float64"):
        cases("softmax", torch.float64)
    with pytest.raises(UnknownOpError, match=r"Did you mean 'softmax'"):
        cases("sofmax", BF16)


# -- what is run ------------------------------------------------------------------------------------------------------


def test_backends_are_all_that_can_serve_peers_last(site, softmax):
    site.backend("ours", "priority=1", ops={"softmax": "return x"})
    site.backend("theirs", "priority=9, auto=False, peer=True", ops={"softmax": "return x"})
    site.backend("absent", "probe=lambda device: 'no driver'", ops={"softmax": "return x"})
    site.backend("idle", "")
    planned = plan([], [BF16], CPU)
    assert [(case.sample.name, names) for case, _, names in planned.entries] == [
        ("4x8", ("ours", "theirs")),
        ("16x8", ("ours", "theirs")),
    ]
    assert planned.left_out == {"backend absent": "no driver"}
    assert (planned.rows, planned.backends) == (4, ["ours", "theirs"])
    assert [row.peer for row in rows(planned)] == [False, True] * 2


def test_unknown_and_unusable_names_are_errors(site, softmax):
    site.backend("absent", "probe=lambda device: 'no driver'")
    with pytest.raises(UnknownBackendError, match=r"'absnt'.* Did you mean 'absent'"):
        plan(["softmax"], [BF16], CPU, backends=["absnt"])
    with pytest.raises(BackendUnavailableError, match="'absent' cannot run on cpu: no driver"):
        plan(["softmax"], [BF16], CPU, backends=["absent"])
    with pytest.raises(UnknownOpError):
        plan(["nothing"], [BF16], CPU)
    with pytest.raises(DtypeError):
        plan(["softmax"], [torch.float64], CPU)


def test_quick_gives_every_op_a_turn_first(softmax):
    register("mine", right)
    tilegym.register_impl("relu", "mine")(lambda x: x.relu())
    order = [(case.op.name, case.sample.name) for case, _, _ in plan([], [BF16], CPU, quick=True).entries]
    relu = [case.sample.name for case in cases("relu", BF16, quick=True)]
    assert order == [("relu", relu[0]), ("softmax", "4x8"), ("relu", relu[1]), ("softmax", "16x8")]
    order = [case.op.name for case, _, _ in plan(["softmax", "relu"], [BF16], CPU).entries]
    assert order == ["softmax"] * 2 + ["relu"] * len(cases("relu", BF16))


def test_without_names_what_cannot_be_timed_is_told(softmax):
    register("mine", right)
    tilegym.dispatch("lawless")(lambda x: x)
    planned = plan([], [torch.float64], CPU)
    assert planned.entries == ()
    assert planned.left_out["lawless"] == "it has no contract"
    assert "not float64" in planned.left_out["softmax in float64"]


def test_a_wrong_answer_gets_no_timing(softmax, clock):
    register("mine", right)
    register("doubled", lambda x: 2 * right(x))
    register("nan", lambda x: right(x) * torch.nan)
    register("shape", lambda x: right(x)[:1])
    register("boom", lambda x: 1 / 0)
    register("cudaless", cudaless)
    register("large", out_of_memory)
    register("picky", right, supports=lambda x: "only on Sundays")
    found = {(row.backend, row.case): row for row in rows()}
    assert len(found) == 16
    assert len(clock) == 2
    for case in ("4x8", "16x8"):
        assert found["mine", case].median_ms == 2.0
        assert found["mine", case].error is None
        for backend, error in {
            "doubled": "wrong: output: norm error 1",
            "nan": "wrong: ",
            "shape": "wrong: expected shape(s) ",
            "boom": "failed: ZeroDivisionError: division by zero",
            "cudaless": "failed: AssertionError: no CUDA",
            "large": "not run: cpu has too little memory",
            "picky": "refused: NoImplementationError: softmax: backend 'picky' refuses this call: only on Sundays",
        }.items():
            row = found[backend, case]
            assert row.error.startswith(error)
            assert (row.median_ms, row.low_ms, row.high_ms, row.rate, row.ceiling_percent) == (None,) * 5


def test_figures_follow_from_time_bytes_and_ceiling(softmax, clock):
    register("mine", right)
    for row in rows():
        assert (row.median_ms, row.low_ms, row.high_ms) == (2.0, 1.5, 3.0)
        assert row.bytes == row.size == MOVED[row.case]
        assert row.unit == "GB/s"
        assert row.rate == pytest.approx(MOVED[row.case] / 2e-3 / 1e9)
        assert row.ceiling_percent == pytest.approx(100 * row.rate / 4.0)
        assert row.intensity == row.flops / row.bytes == 5 / 4


def test_the_error_beside_float64_is_told(softmax, clock):
    register("mine", right)
    register("refuses", right, supports=lambda x: "only on Sundays")
    arguments = cases("softmax", BF16)[0].arguments(CPU)
    (accuracy,) = measure(softmax.contract, arguments, right(**arguments))
    assert [row.norm_error for row in rows()[:2]] == [accuracy.norm_error, None]
    assert 1e-4 < accuracy.norm_error < 8e-3


def test_compute_bound_figures_are_in_tflops(softmax, clock, monkeypatch):
    contract = replace(softmax.contract, flops=lambda x: 2000 * x.numel())
    monkeypatch.setattr(softmax, "contract", contract)
    register("mine", right)
    row = rows()[0]
    assert (row.flops, row.intensity, row.unit) == (64000, 500.0, "TFLOP/s")
    assert row.rate == pytest.approx(64000 / 2e-3 / 1e12)
    assert row.ceiling_percent == pytest.approx(100 * row.rate / 1.0)


def test_every_set_of_inputs_is_called(softmax, clock):
    seen = set()

    def mine(x):
        seen.add((x.shape, x.data_ptr()))  # one case's memory may be the next one's
        return right(x)

    register("mine", mine)
    rows(plan(["softmax"], [BF16], CPU))
    assert len(clock[0]) == 4
    assert len(seen) == 8


def test_a_slow_backend_is_told_and_spared_the_larger_cases(softmax, clock):
    register("mine", right)
    register("slow", right)
    first, second, third, fourth = rows(call_seconds=0.0)
    assert first.error.startswith("too slow: one call took 0.0 s, and may take 0 s")
    assert first.error.replace("too slow", "not run: at 4x8 too slow", 1) == third.error
    assert second.error.startswith("too slow")
    assert fourth.error.startswith("not run")
    assert clock == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError(), "cpu has too little memory for its arguments"),
        (RuntimeError("can't allocate memory"), "RuntimeError: can't allocate memory"),
    ],
)
def test_a_case_whose_arguments_do_not_fit_is_told_and_the_others_run(softmax, clock, monkeypatch, error, reason):
    def large(tensors, *_):
        if tensors["x"].shape == SMALL:
            raise error
        return [dict(tensors)]

    monkeypatch.setattr(suite, "rotation", large)
    register("mine", right)
    register("yours", right)
    *without, first, second = [(row.case, row.backend, row.error) for row in rows()]
    assert without == [("4x8", backend, f"not run: {reason}") for backend in ("mine", "yours")]
    assert (first, second) == (("16x8", "mine", None), ("16x8", "yours", None))


def test_a_run_ends_in_time(softmax, clock):
    register("mine", right)
    assert [row.error for row in rows(total_seconds=0.0)] == ["not run: the 0 s of this run were over"] * 2
    assert clock == []


# -- backward ---------------------------------------------------------------------------------------------------------


class Halved(torch.autograd.Function):
    """Softmax whose gradient is half of the right one."""

    @staticmethod
    def forward(ctx, x):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True)) / 2


def test_backward_is_checked_and_timed_alone(softmax, clock):
    forwards = []

    def mine(x):
        forwards.append(x)
        return right(x)

    register("mine", mine, composite=True)
    register("half", Halved.apply, composite=True)
    planned = plan(["softmax"], [torch.float32], CPU, backward=True)
    assert [direction for _, direction, _ in planned.entries] == ["forward", "backward"] * 2
    only = replace(planned, entries=tuple(entry for entry in planned.entries if entry[1] == "backward"))
    half, mine_row, *_ = rows(only)
    assert (half.backend, half.median_ms) == ("half", None)
    assert half.error.startswith("wrong: gradient of x: norm error 0.5")
    assert (mine_row.error, mine_row.direction, mine_row.bytes) == (None, "backward", 3 * 4 * 32)
    assert len(forwards) == 8  # one for each set of both cases: the timed calls run no forward
    assert [len(calls) for calls in clock] == [4, 4]
    (grad,) = clock[0][0]
    assert grad.shape == SMALL


def test_an_op_without_gradient_says_so(softmax, monkeypatch):
    monkeypatch.setattr(softmax, "contract", replace(softmax.contract, gradient=None))
    register("mine", right)
    planned = plan(["softmax"], [BF16], CPU, backward=True)
    assert {direction for _, direction, _ in planned.entries} == {"forward"}
    assert planned.left_out == {"softmax, backward": "it has no gradient"}


# -- parts of large calls ---------------------------------------------------------------------------------------------


def part(op, sample):
    op = registry.get_op(op)
    return parts.part_to_check(op, op.contract, materialize(sample, dtype=torch.float32))


def shapes(part):
    return {name: tuple(value.shape) for name, value in part.arguments.items() if isinstance(value, torch.Tensor)}


def test_a_small_call_is_checked_whole(monkeypatch):
    sample = Sample(name="s", args={"x": TensorSpec(shape=(12, 8))})
    assert part("softmax", sample).cuts == ()
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 5 * 12 * 8)
    assert part("softmax", sample).cuts == ()
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 5 * 12 * 8 - 1)
    assert shapes(part("softmax", sample)) == {"x": (6, 8)}


def test_a_large_call_is_split_as_the_contract_says(monkeypatch):
    keys = TensorSpec(shape=(3, 2, 20, 8))
    sample = Sample(name="s", args={"q": TensorSpec(shape=(3, 8, 20, 8)), "k": keys, "v": keys})
    one_head = 2 * 210 * 2 * 8  # 210 pairs of a query and a key
    for heads, q_heads, kv_heads, batch in [(8, 8, 2, 1), (4, 4, 1, 1), (2, 2, 1, 1), (1, 1, 1, 1)]:
        monkeypatch.setattr(parts, "CHECKED_FLOPS", heads * one_head)
        expected = {"q": (batch, q_heads, 20, 8), "k": (batch, kv_heads, 20, 8), "v": (batch, kv_heads, 20, 8)}
        assert shapes(part("fmha", sample)) == expected
    found = part("fmha", sample)
    output = torch.arange(3 * 8 * 20 * 8).reshape(3, 8, 20, 8)
    assert torch.equal(found.of(output, "output"), output[2:, 7:])
    assert torch.equal(found.of(output[:, :2], "k"), output[2:, 1:2])
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 1)
    assert shapes(part("fmha", sample))["q"] == (1, 1, 20, 8)  # there is no other way


def test_a_call_that_moves_much_is_split_too(monkeypatch):
    args = {"a": TensorSpec(shape=(2, 64)), "b": TensorSpec(shape=(30, 64)), "trans_b": True}
    monkeypatch.setattr(parts, "CHECKED_BYTES", 4 * (64 + 10 * 64 + 10))
    found = part("matmul", Sample(name="s", args=args))
    assert shapes(found) == {"a": (1, 64), "b": (10, 64)}
    product = torch.arange(60).reshape(2, 30)
    assert torch.equal(found.of(product, "output"), product[1:, 20:])


@pytest.mark.parametrize("name", [name for name in registry.op_names() if "." not in name])
def test_a_part_of_every_call_is_a_call_that_gives_the_part(name, monkeypatch):
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 1)
    monkeypatch.setattr(parts, "CHECKED_BYTES", 1)
    op = registry.get_op(name)
    contract = op.contract

    def outputs(arguments):
        semantic = {name: value for name, value in arguments.items() if name not in contract.hints}
        return tensors_of(contract.fake(*contract.canonical(**semantic)))

    split = 0
    for sample in (*contract.samples(), *contract.benchmarks()):
        arguments = materialize(sample, dtype=contract.dtypes[0], device="meta")
        found = parts.part_to_check(op, contract, arguments)
        if found.cuts:
            split += 1
            wholes = zip(contract.outputs, outputs(arguments), strict=True)
            parted = [found.of(whole, output, "output") for output, whole in wholes]
            assert [one.shape for one in parted] == [one.shape for one in outputs(found.arguments)]
    assert split > 5 or name in ("dropout", "group_gemm", "splitk_reduce")  # of which there are no parts


def test_an_error_in_the_part_is_found(softmax, clock, monkeypatch):
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 1)

    def last_row(x):
        y = right(x)
        y[-1] *= 1.1
        return y

    register("last-row", last_row)
    register("mine", right)
    found = {(row.backend, row.case): row.error for row in rows()}
    assert found["last-row", "4x8"].startswith("wrong: output: norm error 0.097")
    assert found["mine", "4x8"] is None


def test_gradients_of_what_parts_share_are_checked(clock, monkeypatch):
    """A product's b, whose gradient is a sum over all of a's rows; that of the part is the sum over the part's."""
    samples = {"matmul": [Sample(name="s", args={name: TensorSpec(shape=(8, 8)) for name in "ab"})]}
    monkeypatch.setattr(parts, "CHECKED_FLOPS", 2 * 8 * 8 * 2)
    scale = 1.0

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.mT, scale * (a.mT @ grad)

    tilegym.register_impl("matmul", "mine", composite=True)(lambda a, b, *_: Product.apply(a, b))
    planned = plan(["matmul"], [torch.float32], CPU, backends=["mine"], backward=True, samples=samples)
    assert [row.error for row in rows(planned)] == [None, None]
    scale = 1.1
    forward, backward = rows(planned)
    assert forward.error is None
    assert backward.error.startswith("wrong: gradient of b: norm error 0.1")


# -- timing and ceilings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced", "expanded", "strided"])
def test_rotation_copies_values_and_layout(layout):
    sample = Sample(name="s", args={"x": TensorSpec(shape=(6, 10), layout=layout), "p": 0.5})
    arguments = materialize(sample, dtype=BF16)
    sets = rotation(arguments, 240, CPU)
    assert len(sets) == 4
    assert len({one["x"].untyped_storage().data_ptr() for one in sets}) == 4
    for one in sets:
        assert one["p"] == 0.5
        assert torch.equal(one["x"], arguments["x"])
        assert one["x"].stride() == arguments["x"].stride()
        assert one["x"].storage_offset() == arguments["x"].storage_offset()
    assert len(rotation(arguments, 2**40, CPU)) == 2


def test_calls_take_turns():
    counts = [0, 0, 0]

    def count(index):
        counts[index] += 1

    found = time_calls([lambda i=i: count(i) for i in range(3)], CPU, seconds=0.01)
    assert 0 < found.low <= found.median <= found.high
    assert max(counts) - min(counts) <= 1
    assert min(counts) > 10


def test_options_refuse_what_a_device_cannot_do():
    with pytest.raises(BenchmarkError, match="CUDA graphs"):
        Options(device=CPU, graph=True)
    with pytest.raises(BenchmarkError, match="on a CPU or a CUDA device, not on meta"):
        Options(device=torch.device("meta"))


def test_what_is_compared_is_timed_in_rounds_and_nobody_always_comes_first(monkeypatch):
    order = []

    def clock(calls, device, *, graph):
        (call,) = calls
        if call == "broken":
            raise ValueError("it cannot be captured")

        def times(seconds):
            order.append(call)
            if (call, len(order)) == ("breaks", 5):
                raise ValueError("it broke")
            return [len(order) * 1.0] * 2

        return times

    monkeypatch.setattr(timing, "_clock", clock)
    found = time_in_turns({name: [name] for name in ("a", "broken", "b", "breaks")}, CPU)
    assert " ".join(order) == "a b breaks b breaks a a b b a a b"
    assert list(found) == ["a", "broken", "b", "breaks"]
    assert [str(found[name]) for name in ("broken", "breaks")] == ["it cannot be captured", "it broke"]
    of_a = sorted(2 * [index + 1.0 for index, name in enumerate(order) if name == "a"])
    assert (len(of_a), found["a"].median) == (10, of_a[5])


def test_what_failed_keeps_no_memory_from_those_after_it():
    held = []

    def fails():
        tensor = torch.ones(3)
        held.append(weakref.ref(tensor))
        raise torch.OutOfMemoryError

    error = timing.attempt(fails)
    assert isinstance(error, torch.OutOfMemoryError)
    assert [one() for one in held] == [None]


def test_a_slow_call_is_timed_three_times():
    called = []
    found = time_calls([lambda: called.append(time.sleep(0.002))], CPU, seconds=0.0)
    assert len(called) == 1 + 3
    assert 2 < found.low <= found.median <= found.high


@pytest.mark.parametrize(
    ("dtype", "intensity", "unit"),
    [
        ("bfloat16", 249, "GB/s"),
        ("bfloat16", 251, "TFLOP/s"),  # 1 TFLOP/s over 4 GB/s: 250 operations a byte
        ("float8_e5m2", 1e9, "GB/s"),  # no ceiling was measured
    ],
)
def test_what_binds_an_op(dtype, intensity, unit):
    assert unit_of(CEILINGS, dtype, intensity) == unit
    assert ceiling_of(CEILINGS, dtype, unit) == {"GB/s": 4.0, "TFLOP/s": 1.0}[unit]


def test_elementwise_ops_are_bound_by_memory_whatever_a_cpu_multiplies():
    slow = Ceilings(copy_gbps=10.0, matmul_tflops={"bfloat16": 1e-3})
    assert [unit_of(slow, "bfloat16", intensity) for intensity in (5, 15.9, 16)] == ["GB/s", "GB/s", "TFLOP/s"]


def test_ceilings_are_of_this_device(monkeypatch):
    sizes = []

    def time_calls(calls, device):
        sizes.append(calls[0]().shape)
        return Timing(median=9.0, low=2.0, high=9.0)

    monkeypatch.setattr("tilegym.benchmarking.ceilings.time_calls", time_calls)
    found = measure_ceilings(CPU, [torch.float32, torch.float8_e5m2])
    assert sizes == [(512, 512), (2**26,)]
    assert found.copy_gbps == pytest.approx(2 * 2**26 / 2e-3 / 1e9)
    assert found.matmul_tflops == {"float32": pytest.approx(2 * 512**3 / 2e-3 / 1e12)}


def test_the_first_of_a_rounds_short_calls_is_not_timed(monkeypatch):
    """On a CPU: since threads may have gone to sleep while others had their turn."""
    monkeypatch.setattr(timing, "_seconds_of", lambda run, count=1: 0.004 * count)
    monkeypatch.setattr(timing, "_ROUNDS", 3)
    called = []
    found = time_calls([lambda: called.append(1)], CPU, seconds=0.03)
    assert (len(called), found.median) == (3, 4.0)
    time_calls([lambda: called.append(1)], CPU, seconds=0.01)  # longer than its share
    assert len(called) == 3


class FakeGpu:
    """What torch.cuda does to time: its clock goes by 1 ms a call, 7 ms to overwrite the cache; `log` has all of it."""

    def __init__(self, monkeypatch):
        self.log, self.now, self.captures = [], 0.0, False
        gpu = self

        class Event:
            def __init__(self, *, enable_timing):
                assert enable_timing

            def record(self):
                self.at = gpu.now

            def elapsed_time(self, end):
                return end.at - self.at

        class Graph:
            def replay(self):
                gpu.pass_time("replay", 1.0 * self.calls)

        @contextmanager
        def graph(graph, *, stream):
            assert stream == "side stream"
            before = len(gpu.log)
            gpu.captures = True
            yield
            gpu.captures, graph.calls = False, len(gpu.log) - before
            del gpu.log[before:]

        @contextmanager
        def entered(what):
            gpu.log.append(f"on {what}")
            yield

        for name, value in {
            "Event": Event,
            "CUDAGraph": Graph,
            "graph": graph,
            "device": entered,
            "stream": entered,
            "Stream": lambda _: type("Stream", (), {"wait_stream": lambda *_: None, "__str__": lambda _: "stream"})(),
            "current_stream": lambda _: "side stream",
            "synchronize": lambda _: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        empty = torch.empty
        overwritten = type("Buffer", (), {"zero_": lambda _: gpu.pass_time("overwrite", 7.0)})()
        cuda = torch.device("cuda:1")
        monkeypatch.setattr(
            torch,
            "empty",
            lambda *a, device=None, **k: overwritten if device == cuda else empty(*a, device=device, **k),
        )

    def pass_time(self, what, milliseconds):
        self.log.append(what)
        self.now += 0.0 if self.captures else milliseconds

    def call(self):
        self.pass_time("call", 1.0)


def test_on_a_gpu_the_cache_is_overwritten_before_each_call(monkeypatch):
    gpu = FakeGpu(monkeypatch)
    found = time_calls([gpu.call], torch.device("cuda:1"), seconds=0.0)
    assert (found.low, found.median, found.high) == (1.0, 1.0, 1.0)
    timed = ["overwrite", "call"]
    assert gpu.log == ["on cuda:1", *timed * 4, *["call", *timed] * 3]


def test_calls_in_a_graph_are_replayed_together(monkeypatch):
    gpu = FakeGpu(monkeypatch)
    monkeypatch.setattr(timing, "_READING", 0.0)
    with timing.current(torch.device("cuda:1"), graph=True):
        found = time_in_turns({"": [gpu.call] * 4}, torch.device("cuda:1"), seconds=0.0, graph=True)[""]
    assert (found.low, found.median, found.high) == (1.0, 1.0, 1.0)
    assert gpu.log == ["on cuda:1", "on stream", "on cuda:1", "call", "call", *["replay"] * (1 + 3 + 3 * 2)]


# -- benchmark files of one op ----------------------------------------------------------------------------------------


def test_a_figure_is_of_a_right_answer(monkeypatch):
    monkeypatch.setattr(script, "DEVICE", CPU)
    monkeypatch.setattr(script, "time_calls", lambda *_, **__: Timing(median=2.0, low=1.0, high=3.0))
    register("mine", right)
    register("doubled", lambda x: 2 * right(x))
    register("picky", right, supports=lambda x: "only on Sundays")
    arguments = {"x": torch.randn(4, 8, dtype=BF16)}
    assert script.figure("softmax", "mine", arguments) == pytest.approx(128 / 2e-3 / 1e9)
    assert script.figure("softmax", "mine", arguments, "TFLOP/s") == pytest.approx(5 * 32 / 2e-3 / 1e12)
    assert math.isnan(script.figure("softmax", "picky", arguments))
    with pytest.raises(WrongAnswerError, match=r"output: norm error (1|0\.99\d) \(bound 0\.008\)"):
        script.figure("softmax", "doubled", arguments)
    tilegym.dispatch("lawless")(lambda x: x)
    with pytest.raises(RegistrationError, match="'lawless' has no contract"):
        script.figure("lawless", "mine", arguments)


def test_a_config_has_a_line_for_each_backend_that_can_run(site, monkeypatch):
    pytest.importorskip("triton.testing")
    monkeypatch.setattr(script, "DEVICE", CPU)
    site.backend("ours", "priority=1", ops={"softmax": "return x"})
    site.backend("theirs", "priority=9, auto=False, peer=True", ops={"softmax": "return x"})
    site.backend("absent", "probe=lambda device: 'no driver'", ops={"softmax": "return x"})
    config = script.create_benchmark_config("softmax", BF16, x_name="N", x_vals=[4096], small=[8, 16])
    assert (config.x_names, config.x_vals, config.line_vals) == (["N"], [8, 16], ["ours", "theirs"])
    assert (config.plot_name, config.args) == ("softmax-bfloat16-cpu-GBps", {"datatype": BF16})
    monkeypatch.setattr(script, "DEVICE", torch.device("cuda"))
    config = script.create_benchmark_config("softmax", BF16, x_name="N", x_vals=[4096], small=[8], unit="TFLOP/s")
    assert (config.x_vals, config.plot_name) == ([4096], "softmax-bfloat16-cuda-TFLOPS")


def test_a_backend_that_was_named_is_left_out_where_it_implements_nothing(softmax):
    tilegym.register_impl("softmax", "mine")(right)
    planned = plan(["rms_norm", "softmax"], [BF16], CPU, backends=["mine"])
    assert {case.op.name for case, _, backends in planned.entries if backends} == {"softmax"}
    assert planned.left_out["rms_norm on mine"] == "it has no implementation"


def test_a_backward_may_write_over_its_inputs(softmax):
    """As some peers do; what is checked, and what the next backend is given, are the inputs as they were."""

    def over_its_inputs(x):
        def overwrite(_):
            x.data.fill_(7.0)

        y = torch.softmax(x, -1)
        if y.requires_grad:
            y.register_hook(overwrite)
        return y

    tilegym.register_impl("softmax", "mine", composite=True)(over_its_inputs)
    found = rows(plan(["softmax"], [BF16], CPU, backends=["mine"], backward=True))
    assert [row.error for row in found] == [None] * 4
