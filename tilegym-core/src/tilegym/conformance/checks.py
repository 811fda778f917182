"""The checks themselves: each raises AssertionError with what was expected and what came."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch

from tilegym import events, registry
from tilegym.calls import bound, describe_call
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import ArgumentTypeError, ContractError, DtypeError
from tilegym.explanation import explain
from tilegym.testing import assert_accurate, materialize, poison
from tilegym.testing.gradients import measure_gradients

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from tilegym.conformance.cells import Cell
    from tilegym.contract import Contract
    from tilegym.op import Op


@contextmanager
def poisoned_outputs() -> Iterator[None]:
    """New tensors are full of NaN inside the block, so that an element nobody writes is seen."""

    def poisoned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *args, **kwargs: poison(make(*args, **kwargs))

    with (
        mock.patch.object(torch, "empty", poisoned(torch.empty)),
        mock.patch.object(torch, "empty_like", poisoned(torch.empty_like)),
        mock.patch.object(torch, "empty_strided", poisoned(torch.empty_strided)),
        mock.patch.object(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty)),
    ):
        yield


def why_refused(cell: Cell, backend: str, device: torch.device) -> str | None:
    """The backend's reason for not taking a cell; None if it takes it."""
    arguments = _gradient_arguments(cell, device)[0] if cell.gradient else _arguments(cell, device)
    explanation = explain(cell.op, **arguments, backend=backend)
    return None if explanation.chosen is not None else explanation.reason


def check_cell(cell: Cell, backend: str, device: torch.device) -> None:
    """One cell: the right values in the right form, twice the same, on this backend, with nothing else written."""
    op = registry.get_op(cell.op)
    contract = op.contract
    assert contract is not None, f"{cell.op} has no contract"
    arguments = _arguments(cell, device)
    memory = _Memory(arguments)
    with poisoned_outputs(), events.trace() as calls:
        first = op.function(**arguments, backend=backend)
    ran = [(call.op, call.backend) for call in calls]
    assert ran == [(op.name, backend)], f"expected one call of {op.name} on {backend}, got {ran}"
    memory.check()
    _check_form(op, contract, arguments, first)
    assert_accurate(contract, arguments, first)
    kept = [value.clone() for value in _tensors(first)]
    second = op.function(**arguments, backend=backend)
    for one, other in zip(kept, _tensors(second), strict=True):
        assert _same_bits(one, other), "a second call with the same arguments gave other bits"
    memory.check()


def check_gradient(cell: Cell, backend: str, device: torch.device) -> None:
    """The gradients of one cell, for each input that has one, are right and twice the same."""
    op = registry.get_op(cell.op)
    contract = op.contract
    assert contract is not None, f"{cell.op} has no contract"
    assert contract.gradient is not None, f"{cell.op} has no gradient"
    arguments, inputs = _gradient_arguments(cell, device)
    with poisoned_outputs():
        result = op.function(**arguments, backend=backend)
    grad_output = _like_the_first_input(cell, result)
    with poisoned_outputs():
        first, second = (torch.autograd.grad(result, [*inputs.values()], grad_output, retain_graph=True) for _ in "12")
    for one, other in zip(first, second, strict=True):
        assert _same_bits(one, other), "a second backward gave other bits"
    gradients = dict(zip(inputs, first, strict=True))
    found = measure_gradients(contract, contract.gradient, arguments, grad_output, gradients)
    for name, accuracy in found.items():
        assert accuracy.ok, f"gradient of {name}: {accuracy}"


def _arguments(cell: Cell, device: torch.device) -> dict[str, Any]:
    return materialize(cell.sample, dtype=cell.dtype, device=device)


def _gradient_arguments(cell: Cell, device: torch.device) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """All arguments, and of them those that require a gradient."""
    arguments = _arguments(cell, device)
    contract = registry.get_op(cell.op).contract
    names = contract.gradient.inputs if contract is not None and contract.gradient is not None else ()
    inputs = {name: arguments[name] for name in names if isinstance(arguments.get(name), torch.Tensor)}
    for value in inputs.values():
        value.requires_grad_()
    return arguments, inputs


def _like_the_first_input(cell: Cell, result: Tensor) -> Tensor:
    """A gradient of the output, laid out in memory as the cell's first input."""
    layout = next(value.layout for value in cell.sample.args.values() if isinstance(value, TensorSpec))
    spec = TensorSpec(shape=tuple(result.shape), layout=layout if result.dim() > 1 else "contiguous")
    sample = Sample(name="gradient", args={"grad_output": spec})
    grad_output: Tensor = materialize(sample, dtype=result.dtype, device=result.device)["grad_output"]
    return grad_output


def _tensors(result: Tensor | Iterable[Any]) -> list[Tensor]:
    values = (result,) if isinstance(result, torch.Tensor) else result
    return [value for value in values if isinstance(value, torch.Tensor)]


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.contiguous().flatten().view(torch.uint8), other.contiguous().flatten().view(torch.uint8)
    )


class _Memory:
    """The bytes of all arguments' storages: all must stay, but for the elements of `out`."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._tensors = {
            name: value
            for name, value in arguments.items()
            if isinstance(value, torch.Tensor) and value.layout is torch.strided
        }
        self._before = {name: _storage(value) for name, value in self._tensors.items()}

    def check(self) -> None:
        """Raise AssertionError if a byte outside `out` has changed."""
        for name, tensor in self._tensors.items():
            after, before = _storage(tensor), self._before[name]
            if name == "out":
                after, before = (_without_elements(tensor, storage) for storage in (after, before))
            assert torch.equal(after, before), f"memory of argument {name} that is not its to write has changed"


def _storage(tensor: Tensor) -> Tensor:
    """A copy of the bytes of a tensor's whole storage."""
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage()).clone()


def _without_elements(tensor: Tensor, storage: Tensor) -> Tensor:
    """The bytes of a storage with a tensor's own elements put to zero."""
    whole = storage.clone()
    whole.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).zero_()
    return whole


def _check_form(op: Op, contract: Contract, arguments: dict[str, Any], result: Any) -> None:
    """Shape, dtype, device and strides must be those of the contract's fake; a given `out` is what comes back."""
    canonical = describe_call(op, *bound(op, (), arguments)).canonical
    for got, expected in zip(_tensors(result), _tensors(contract.fake(*canonical)), strict=True):
        form = [(t.shape, t.dtype, t.device, t.stride()) for t in (got, expected)]
        assert form[0] == form[1], f"expected (shape, dtype, device, strides) {form[1]}, got {form[0]}"
    if arguments.get("out") is not None:
        assert result is arguments["out"], "out= was given, and something else was returned"


def check_bad_input(op_name: str, backend: str, device: torch.device) -> None:
    """What breaks the contract raises before anything is written: wrong dtype, no tensor, unknown option."""
    op = registry.get_op(op_name)
    contract = op.contract
    assert contract is not None, f"{op_name} has no contract"
    samples = (materialize(sample, dtype=contract.dtypes[0], device=device) for sample in contract.samples())
    good = next(arguments for arguments in samples if all(value.numel() for value in _tensors(arguments.values())))
    first = next(name for name, value in good.items() if isinstance(value, torch.Tensor))
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({first: good[first].to(torch.int64)}, DtypeError),
        ({first: good[first].to(torch.complex64)}, DtypeError),
        ({first: good[first].to_sparse()}, ContractError),
        ({first: [1.0, 2.0]}, ArgumentTypeError),
        ({first: None}, ArgumentTypeError),
        ({"no_such_option": 1}, ArgumentTypeError),
    ]
    for change, error in wrong:
        arguments = good | change
        memory = _Memory(arguments)
        with pytest.raises(error, match=op.name.rpartition(".")[2]):
            op.function(**arguments, backend=backend)
        memory.check()
