"""The base class of users' test files: an op beside a reference in PyTorch, on the same arguments.

    from .. import common  # which re-exports PyTestCase, as tests/common.py of this repository does

    class Test_MyOp(common.PyTestCase):
        def test_op(self, arch):
            self.setUp()
            x = torch.randn(4, 1000, device="cuda")
            self.assertCorrectness(tilegym.ops.my_op, self.reference, {"x": x}, rtol=1e-3, atol=1e-3)

The pytest plugin of `tilegym-core` runs each test of such a class with the choice of backend and the registrations put
back afterwards, skips one that asks for CUDA where there is none, and brings the fixture `arch`. Here tolerances are
the test's own; the conformance suite knows what an op's contract bounds.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    Function = Callable[..., Any]
    GradientSource = Tensor | Sequence[Tensor] | Callable[[Tensor], Tensor]


class PyTestCase:
    """Assertions for test classes that pytest collects."""

    def setUp(self) -> None:
        """Seed torch's generators, so that a test's inputs are the same in every run and order."""
        torch.manual_seed(0)

    def assertCorrectness(
        self,
        test_fn: Function,
        ref_fn: Function,
        kwargs: Mapping[str, Any],
        extra_test_kwargs: Mapping[str, Any] | None = None,
        extra_ref_kwargs: Mapping[str, Any] | None = None,
        gradient: GradientSource | None = None,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_stride: bool = False,
        multiple_outputs: bool = False,
        test_index: int | None = None,
        ref_index: int | None = None,
        output_processor: Function | None = None,
        comparison_chunk_size: int | None = None,
    ) -> None:
        """Assert that two functions give equal outputs, and with `gradient` equal gradients.

        Args:
            test_fn: the function under test; it gets the tensors of `kwargs` themselves, in their own layout.
            ref_fn: the reference; it gets copies, made before `test_fn` may have written to its arguments.
            kwargs: the arguments of both.
            extra_test_kwargs: further arguments of `test_fn`.
            extra_ref_kwargs: further arguments of `ref_fn`.
            gradient: the gradient of the output, or one per output, or what makes it from `test_fn`'s output; then
                the gradients of all tensors in `kwargs` that require one are compared too.
            rtol: relative tolerance; both or neither are given. Neither: torch's own for the dtype.
            atol: absolute tolerance.
            equal_nan: whether NaN equals NaN.
            check_stride: whether strides must be equal too.
            multiple_outputs: both functions return sequences, to be compared item by item.
            test_index: which of `test_fn`'s outputs is compared; None: what it returns.
            ref_index: the same for `ref_fn`.
            output_processor: applied to each output on both sides before they are compared.
            comparison_chunk_size: compare so many elements at a time, which takes less memory.
        """
        copies = {name: _copy(value) for name, value in kwargs.items()}
        actual = _outputs(test_fn(**kwargs, **(extra_test_kwargs or {})), test_index, multiple_outputs, "test_fn")
        expected = _outputs(ref_fn(**copies, **(extra_ref_kwargs or {})), ref_index, multiple_outputs, "ref_fn")
        close = partial(
            self.assertAllClose, rtol=rtol, atol=atol, equal_nan=equal_nan, chunk_size=comparison_chunk_size
        )
        assert len(actual) == len(expected), f"test_fn has {len(actual)} outputs, ref_fn has {len(expected)}"
        process = output_processor or (lambda output: output)
        for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
            name = "output" if len(actual) == 1 else f"output {index}"
            close(process(got), process(want), check_stride=check_stride, name=name)
        if gradient is not None:
            given = _gradients_of_outputs(gradient, actual)
            found = _gradients(kwargs, actual, given)
            for name, want in _gradients(copies, expected, given).items():
                close(found[name], want, name=f"gradient of {name}")

    def assertAllClose(
        self,
        actual: Any,
        expected: Any,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_stride: bool = False,
        chunk_size: int | None = None,
        name: str = "output",
    ) -> None:
        """Assert that two tensors, or numbers, are equal within tolerances, and of one shape, dtype and device.

        Args:
            actual: what came.
            expected: what should have come.
            rtol: relative tolerance; both or neither are given. Neither: torch's own for the dtype.
            atol: absolute tolerance.
            equal_nan: whether NaN equals NaN.
            check_stride: whether strides must be equal too.
            chunk_size: compare so many elements at a time.
            name: what the message calls it.
        """

        def check(got: Any, want: Any, where: str, strides: bool) -> None:
            torch.testing.assert_close(
                got,
                want,
                rtol=rtol,
                atol=atol,
                equal_nan=equal_nan,
                check_stride=strides,
                msg=lambda message: f"{where}: {message}",
            )

        tensors = isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)
        if chunk_size is None or not tensors or actual.shape != expected.shape:
            check(actual, expected, name, check_stride)
            return
        if check_stride:
            assert actual.stride() == expected.stride(), f"{name}: strides {actual.stride()}, not {expected.stride()}"
        pieces = zip(*(tensor.detach().reshape(-1).split(chunk_size) for tensor in (actual, expected)), strict=True)
        for index, (got, want) in enumerate(pieces):
            check(got, want, f"{name}, elements from {index * chunk_size}", False)

    def assertDeterministic(
        self,
        test_fn: Function,
        kwargs: Mapping[str, Any],
        extra_test_kwargs: Mapping[str, Any] | None = None,
        gradient: GradientSource | None = None,
        repeats: int = 3,
    ) -> None:
        """Assert that a function gives the same bits each time, for outputs and with `gradient` for gradients.

        Args:
            test_fn: the function; each run gets copies of the arguments.
            kwargs: its arguments.
            extra_test_kwargs: further arguments.
            gradient: as for `assertCorrectness`.
            repeats: how often it is run again.
        """
        first: dict[str, Any] = {}
        for run in range(repeats + 1):
            copies = {name: _copy(value) for name, value in kwargs.items()}
            result = test_fn(**copies, **(extra_test_kwargs or {}))
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            found = {f"output {index}": output for index, output in enumerate(outputs)}
            if gradient is not None:
                given = _gradients_of_outputs(gradient, outputs)
                gradients = _gradients(copies, outputs, given)
                found |= {f"gradient of {name}": value for name, value in gradients.items()}
            first = first or found
            for name, value in found.items():
                assert _same_bits(value, first[name]), f"{name} of run {run} differs from that of run 0"


def _copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return type(value)(map(_copy, value)) if type(value) in {list, tuple} else value


def _outputs(result: Any, index: int | None, multiple: bool, function: str) -> list[Any]:
    if index is not None:
        return [result[index]]
    if multiple:
        return list(result)
    if isinstance(result, (tuple, list)):
        which = "test_index" if function == "test_fn" else "ref_index"
        raise TypeError(f"{function} returned {len(result)} outputs: give multiple_outputs=True, or {which}=")
    return [result]


def _differentiable(outputs: Sequence[Any]) -> list[Tensor]:
    return [output for output in outputs if isinstance(output, torch.Tensor) and output.requires_grad]


def _gradients_of_outputs(gradient: GradientSource, outputs: Sequence[Any]) -> list[Tensor]:
    """One per output that has a gradient; made once, so that both functions get the same."""
    found = _differentiable(outputs)
    assert found, "gradient= was given, and no output has a gradient: does an input require one?"
    if callable(gradient):
        return [gradient(output.detach()) for output in found]
    return [gradient] if isinstance(gradient, torch.Tensor) else list(gradient)


def _gradients(arguments: Mapping[str, Any], outputs: Sequence[Any], given: Sequence[Tensor]) -> dict[str, Tensor]:
    """The gradient of each argument that requires one, by name."""
    inputs = {name: value for name, value in _named(arguments) if isinstance(value, torch.Tensor)}
    wanted = {name: value for name, value in inputs.items() if value.requires_grad}
    found = torch.autograd.grad(_differentiable(outputs), [*wanted.values()], given, allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def _named(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        if isinstance(value, (list, tuple)):
            yield from _named({f"{name}[{index}]": item for index, item in enumerate(value)})
        else:
            yield name, value


def _same_bits(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return bool(one == other)
    raw = [value.detach().contiguous().reshape(-1).view(torch.uint8) for value in (one, other)]
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(*raw)
