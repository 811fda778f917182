"""The checks themselves: each raises AssertionError with what was expected and what came."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
import torch

from tilegym import events, registry
from tilegym.calls import bound, describe_call
from tilegym.conformance.cells import tensor_specs
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import ArgumentTypeError, ContractError, DtypeError
from tilegym.explanation import explain
from tilegym.guards import tensors_in
from tilegym.testing import assert_accurate, materialize, poison
from tilegym.testing.accuracy import tensors_of
from tilegym.testing.gradients import differentiable_outputs, inputs_of, measure_gradients
from tilegym.torch_ops import OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    arguments, again = _arguments(cell, device), _arguments(cell, device)
    memory = _Memory(op, arguments)
    with poisoned_outputs(), events.trace() as calls:
        first = op.function(**arguments, backend=backend)
    ran = [(call.op, call.backend) for call in calls]
    assert ran == [(op.name, backend)], f"expected one call of {op.name} on {backend}, got {ran}"
    memory.check()
    _check_form(op, contract, arguments, first)
    assert_accurate(contract, again, first)
    kept = [value.clone() for value in tensors_of(first)]
    second = op.function(**again, backend=backend)
    for one, other in zip(kept, tensors_of(second), strict=True):
        assert _same_bits(one, other), "a second call with the same arguments gave other bits"


def check_gradient(cell: Cell, backend: str, device: torch.device) -> None:
    """The gradients of one cell, for each input that has one, are right and twice the same."""
    op = registry.get_op(cell.op)
    contract = op.contract
    assert contract is not None, f"{cell.op} has no contract"
    assert contract.gradient is not None, f"{cell.op} has no gradient"
    arguments, inputs = _gradient_arguments(cell, device)
    with poisoned_outputs():
        outputs = differentiable_outputs(contract, op.function(**arguments, backend=backend))
    grad_outputs = tuple(_like_the_first_input(cell, one, seed) for seed, one in enumerate(outputs))
    with poisoned_outputs():
        first, second = (
            torch.autograd.grad(outputs, [*inputs.values()], grad_outputs, retain_graph=True) for _ in "12"
        )
    for one, other in zip(first, second, strict=True):
        assert _same_bits(one, other), "a second backward gave other bits"
    gradients = dict(zip(inputs, first, strict=True))
    found = measure_gradients(contract, contract.gradient, arguments, grad_outputs, gradients)
    for name, accuracy in found.items():
        assert accuracy.ok, f"gradient of {name}: {accuracy}"


def _arguments(cell: Cell, device: torch.device) -> dict[str, Any]:
    return materialize(cell.sample, dtype=cell.dtype, device=device)


def _gradient_arguments(cell: Cell, device: torch.device) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """All arguments, and of them those that require a gradient."""
    arguments = _arguments(cell, device)
    contract = registry.get_op(cell.op).contract
    gradient = None if contract is None else contract.gradient
    inputs = {} if gradient is None else inputs_of(gradient, arguments)
    for value in inputs.values():
        value.requires_grad_()
    return arguments, inputs


def _like_the_first_input(cell: Cell, result: Tensor, seed: int) -> Tensor:
    """A gradient of an output, laid out in memory as the cell's first input."""
    layout = next(tensor_specs(cell.sample)).layout
    spec = TensorSpec(shape=tuple(result.shape), layout=layout if result.dim() > 1 else "contiguous")
    sample = Sample(name="gradient", args={"grad_output": spec})
    grad_output: Tensor = materialize(sample, dtype=result.dtype, device=result.device, seed=seed)["grad_output"]
    return grad_output


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(
        one.contiguous().flatten().view(torch.uint8), other.contiguous().flatten().view(torch.uint8)
    )


class _Memory:
    """The bytes of all arguments' storages: all must stay, but for the elements of what the op writes."""

    def __init__(self, op: Op, arguments: dict[str, Any], *, writes: bool = True) -> None:
        self._out = _canonical(op, arguments).get(OUT) if writes else None
        self._tensors = {
            f"{name}[{index}]" if isinstance(value, list) else name: one
            for name, value in arguments.items()
            for index, one in enumerate(tensors_in([value]))
            if one.layout is torch.strided
        }
        self._before = {name: _storage(value) for name, value in self._tensors.items()}

    def check(self) -> None:
        """Raise AssertionError if a byte has changed that is not the op's to write."""
        for name, tensor in self._tensors.items():
            after, before = _storage(tensor), self._before[name]
            if tensor is self._out:
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
    canonical = _canonical(op, arguments)
    same = None if contract.identity is None else contract.identity(*canonical.values())
    if same is not None:
        assert result is same, "expected the argument itself, since there is nothing to compute"
        return
    for got, expected in zip(tensors_of(result), tensors_of(contract.fake(*canonical.values())), strict=True):
        form = [(t.shape, t.dtype, t.device, t.stride()) for t in (got, expected)]
        assert form[0] == form[1], f"expected (shape, dtype, device, strides) {form[1]}, got {form[0]}"
    if canonical.get(OUT) is not None:
        assert result is canonical[OUT], "a tensor was to be written, and something else was returned"


def _canonical(op: Op, arguments: dict[str, Any]) -> dict[str, Any]:
    """The canonical arguments of a call, by name."""
    return dict(zip(op.canonical_parameters, describe_call(op, *bound(op, (), arguments)).canonical, strict=True))


def check_bad_input(op_name: str, backend: str, device: torch.device) -> None:
    """What breaks the contract raises before anything is written: wrong dtype, no tensor, unknown option."""
    op = registry.get_op(op_name)
    contract = op.contract
    assert contract is not None, f"{op_name} has no contract"
    samples = (materialize(sample, dtype=contract.dtypes[0], device=device) for sample in contract.samples())
    good = next(arguments for arguments in samples if all(value.numel() for value in tensors_in(arguments.values())))
    first = next(name for name, value in good.items() if next(tensors_in([value]), None) is not None)
    rest = good[first][1:] if isinstance(good[first], list) else None
    tensor = good[first] if rest is None else good[first][0]

    def instead(value: object) -> dict[str, Any]:
        """The first argument, or its first member, replaced."""
        return {first: value if rest is None else [value, *rest]}

    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        (instead(tensor.to(torch.int64)), DtypeError),
        (instead(tensor.to(torch.complex64)), DtypeError),
        (instead(tensor.to_sparse()), ContractError),
        (instead([1.0, 2.0]), ArgumentTypeError),
        (instead(None), ArgumentTypeError),
        ({"no_such_option": 1}, TypeError),  # Python's own, where the signature has no **kwargs
    ]
    for change, error in wrong:
        arguments = good | change
        memory = _Memory(op, arguments, writes=False)
        with pytest.raises(error, match=op.name.rpartition(".")[2]):
            op.function(**arguments, backend=backend)
        memory.check()
