"""What PyTorch's counter of FLOPs and its profilers tell of our ops."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

import tilegym
from tests.ops.test_torch_citizen import Case, everywhere, on_kernels
from tilegym.contract import Contract, Gradient


@pytest.fixture
def case(name, backend):
    return Case(name, backend)


def counted(call) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter:
        call()
    return {str(op).removeprefix("tilegym."): flops for op, flops in counter.get_flop_counts()["Global"].items()}


@on_kernels
def test_flops_are_those_of_the_contract(case):
    canonical, counts = case.contract.canonical(**case.arguments), case.contract.gradient.flops
    flops = case.contract.flops(*canonical)
    assert counted(lambda: case.call(*[leaf.detach() for leaf in case.leaves()])) == {case.name: flops}
    found = counted(lambda: case.call(*case.leaves()).sum().backward())
    of_backward = 2 * flops if counts is None else counts(*canonical)
    assert found == {f"{case.name}_fwd": flops, f"{case.name}_bwd": of_backward}


def test_flops_of_the_first_call_and_of_a_contract_that_counts_its_backward():
    """PyTorch's counter copies what is registered when it is made; the torch ops are defined later, by the call."""

    @tilegym.dispatch("observed")
    def observed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor: ...

    def canonical(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, y

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x * y

    observed.contract = Contract(
        canonical=canonical,
        reference=reference,
        magnitude=reference,
        reduction=lambda *_: 1,
        fake=lambda x, _: torch.empty_like(x),
        samples=list,
        bytes_moved=lambda *_: 0,
        flops=lambda x, _: x.numel(),
        gradient=Gradient(
            inputs=("x", "y"),
            magnitude=reference,
            saved=("x", "y"),
            like=("x", "y"),
            flops=lambda x, y: 3 * y.numel(),
        ),
    )
    tilegym.register_impl("observed", "lab")(lambda x, y: x * y)
    tilegym.register_backward("observed", "lab")(lambda grad, x, y: (grad * y, grad * x))
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    found = counted(lambda: observed(x, y, backend="lab").sum().backward())
    assert found == {"observed_fwd": 6, "observed_bwd": 18}


@everywhere
def test_profilers_show_op_and_backend(case):
    leaves = case.leaves()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        case.call(*leaves).sum().backward()
        case.call(*leaves)  # from the table
    ranges = sorted(event.name for event in found.events() if event.name.startswith("tilegym::") and "[" in event.name)
    forward, backward = f"tilegym::{case.name}[{case.backend}]", f"tilegym::{case.name}_bwd[{case.backend}]"
    assert ranges == [forward, forward, *([backward] if case.backend != "torch" else [])]  # torch's is PyTorch's own


def test_without_a_profiler_there_is_no_range(monkeypatch):
    def never(_):
        raise AssertionError("a range was made")

    monkeypatch.setattr(torch.autograd.profiler, "record_function", never)
    for _ in range(3):
        tilegym.ops.softmax(torch.ones(2, 3), backend="torch")
