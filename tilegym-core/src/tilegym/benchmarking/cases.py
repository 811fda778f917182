"""What is timed: the cases of the contracts, with the bytes and operations that each needs at the least."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tilegym import registry
from tilegym.errors import BenchmarkError, DtypeError, RegistrationError
from tilegym.guards import tensors_in
from tilegym.testing import materialize
from tilegym.testing.accuracy import outputs_of
from tilegym.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from tilegym.contract import Contract, Gradient, Sample
    from tilegym.op import Op

QUICK_BYTES: Final = 4 * 2**20
"""A quick run takes the cases that move at most this much: what the interpreter of `cutile-cpu` does in a second."""

_QUICK_CASES: Final = 2
_LARGEST_SAMPLES: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a call needs at the least."""

    bytes: int
    """Read and written."""
    flops: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A sample in a dtype."""

    op: Op
    contract: Contract
    sample: Sample
    dtype: torch.dtype
    forward: Work
    backward: Work | None
    """None: the op has no gradient."""
    graph: bool = False
    """Whether it asks for calls to be replayed from a CUDA graph, since what the CPU spends on one is not its point."""

    @property
    def dtype_name(self) -> str:
        """`bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    def arguments(self, device: torch.device) -> dict[str, Any]:
        """The arguments of a call, by name; the values are drawn on the device, which is faster by far."""
        return materialize(self.sample, dtype=self.dtype, device=device, drawn_there=True)


def cases(
    name: str,
    dtype: torch.dtype,
    *,
    quick: bool = False,
    samples: Iterable[Sample] | None = None,
    graph: bool = False,
) -> list[Case]:
    """The cases of an op, the smallest first.

    They are the contract's `benchmarks`; for a contract without, the largest of its `samples`.

    Args:
        name: the op's.
        dtype: that of the samples.
        quick: a few small ones alone (`QUICK_BYTES`); the smallest if none is small.
        samples: these instead of the contract's.
        graph: whether they ask for a CUDA graph.

    Raises:
        UnknownOpError: nothing has this name.
        RegistrationError: the op has no contract, so that nobody can say what is right.
        DtypeError: the op does not take the dtype.
        BenchmarkError: a sample lacks an argument of the op, or has one that the op does not.
    """
    op = registry.get_op(name)
    contract = op.contract
    if contract is None:
        raise RegistrationError(f"op {name!r} has no contract: there are no cases, and nothing to check results by")
    if dtype not in contract.dtypes:
        accepted = listed(str(one).removeprefix("torch.") for one in contract.dtypes)
        raise DtypeError(f"op {name!r} takes {accepted}, not {str(dtype).removeprefix('torch.')}")
    wanted = samples if samples is not None else (contract.benchmarks or contract.samples)()
    found = [_case(op, contract, sample, dtype, graph) for sample in wanted]
    found.sort(key=lambda case: case.forward.bytes)
    if contract.benchmarks is None and samples is None:
        found = found[-_LARGEST_SAMPLES:]
    if quick:
        found = [case for case in found if case.forward.bytes <= QUICK_BYTES][:_QUICK_CASES] or found[:1]
    return found


def _case(op: Op, contract: Contract, sample: Sample, dtype: torch.dtype, graph: bool) -> Case:
    outline = materialize(sample, dtype=dtype, device="meta")
    given = {name: value for name, value in outline.items() if name not in contract.hints}
    try:
        inspect.signature(contract.canonical).bind(**given)
    except TypeError as error:  # such as a misspelt name in a sweep
        raise BenchmarkError(f"case {sample.name} of {op.name}: {error}") from None
    canonical = contract.canonical(**given)
    forward = Work(bytes=contract.bytes_moved(*canonical), flops=contract.flops(*canonical))
    backward = None
    if contract.gradient is not None:
        named = dict(zip(op.canonical_parameters, canonical, strict=True))
        backward = _backward_work(contract, contract.gradient, named, forward)
    return Case(op=op, contract=contract, sample=sample, dtype=dtype, forward=forward, backward=backward, graph=graph)


def _backward_work(contract: Contract, gradient: Gradient, named: dict[str, Any], forward: Work) -> Work:
    """Reads the gradients of the outputs and what the forward saved, each once; writes the gradients."""
    canonical = [*named.values()]
    outputs = outputs_of(contract, contract.fake(*canonical))
    residuals = gradient.residuals(*canonical) if gradient.residuals is not None else ()
    grads = {f"grad_{name}": outputs[name] for name in gradient.outputs or contract.outputs}
    known = named | outputs | grads | dict(zip(gradient.residual_names, residuals, strict=True))
    touched = [*grads.values(), *(known[name] for name in (*gradient.saved, *gradient.like))]
    flops = 2 * forward.flops if gradient.flops is None else gradient.flops(*canonical)
    return Work(bytes=sum(map(_bytes, touched)), flops=flops)


def _bytes(value: Any) -> int:
    return sum(one.numel() * one.element_size() for one in tensors_in([value]))
