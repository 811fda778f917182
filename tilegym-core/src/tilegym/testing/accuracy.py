"""The error bound of every op and backend, in one place; no contract or test overrides it.

With o the output, r the contract's float64 reference on the same, already rounded inputs, n the number of terms added
up for an element, A the op on absolute values, u(t) the unit roundoff of dtype t and t(t) its smallest number:

    norm:     |o - r|_2 <= tolerance(out) |r|_2 + t(out) sqrt(numel)
    element:  |o - r|   <= 2 u(out) |r| + C u(float32) sqrt(n) A + t(out)

where u(float32) becomes that of the inputs' dtype for ops that round to it between two steps (`rounded_between`). For
float8 inputs it becomes that of the sums of GPUs' tensor cores, and a float32 result's tolerance grows with it.
The terms in t(out) are the rounding of results that underflow. C was fixed once, from PyTorch's own ops (`C` below).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.contract import FLOAT8
from tilegym.guards import tensors_in

if TYPE_CHECKING:
    from torch import Tensor

    from tilegym.contract import Contract

C: Final = 2.0
"""With 1, torch 2.13's own ops use at most 0.93 of the bound on our samples; 2 leaves room for a GPU's exp2 (2 ulp)."""

_NORM_TOLERANCE: Final = {
    torch.float16: 2e-3,
    torch.bfloat16: 8e-3,
    torch.float8_e4m3fn: 2**-4,  # their unit roundoffs: such results have few numbers to err about
    torch.float8_e5m2: 2**-3,
}
_NORM_TOLERANCE_FLOAT32: Final = 1e-6  # times sqrt(n)
_SINGLE: Final = torch.finfo(torch.float32).eps / 2
_FLOAT8_SUMS: Final = 2.0**-16
"""An H200's tensor cores add up products of float8 to 14 bits of the largest, some at a time (DeepSeek-V3 Technical
Report, section 3.5.2): cuBLAS's results and ours, which are the same, err there by up to 2^-15.2 sqrt(n) A."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accuracy:
    """How far a result is from the reference, beside how far it may be."""

    norm_error: float
    """|o - r| / |r| in the 2-norm, over finite elements."""
    norm_bound: float
    element_ratio: float
    """The largest of |o - r| / its bound over all elements; inf where a NaN or infinity is not where it should be."""
    worst_index: tuple[int, ...]
    """Where that is."""

    @property
    def ok(self) -> bool:
        """Whether both bounds hold."""
        return self.norm_error <= self.norm_bound and self.element_ratio <= 1

    def __str__(self) -> str:
        """Both errors beside their bounds."""
        return (
            f"norm error {self.norm_error:.3g} (bound {self.norm_bound:.3g}), worst element at {self.worst_index}: "
            f"{self.element_ratio:.3g} of its bound"
        )


def double(value: Any) -> Any:
    """A value with its tensors in float64 and cut from the graph."""
    if isinstance(value, torch.Tensor):
        return value.detach().double() if value.is_floating_point() else value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(double(item) for item in value)
    return value


def measure(contract: Contract, arguments: dict[str, Any], actual: Any) -> tuple[Accuracy, ...]:
    """The accuracy of an op's outputs, one by one, against the contract's float64 reference.

    Args:
        contract: the op's.
        arguments: the call's, by name.
        actual: what the backend returned; of a tuple, the tensors count.
    """
    semantic = {name: value for name, value in arguments.items() if name not in contract.hints}
    given = contract.canonical(**semantic)
    dtype = next(tensors_in(given)).dtype
    sums = unit_of_sums(dtype)
    unit = unit_roundoff(dtype) if contract.rounded_between else sums
    canonical = [double(value) for value in given]
    outputs, expected = tensors_of(actual), tensors_of(contract.reference(*canonical))
    got, wanted = ([tuple(tensor.shape) for tensor in some] for some in (outputs, expected))
    if got != wanted:
        raise AssertionError(f"expected shape(s) {wanted}, got {got}")
    scales = tensors_of(contract.magnitude(*canonical))
    terms = max(1, contract.reduction(*canonical))
    return tuple(compare(*each, terms, unit=unit, sums=sums) for each in zip(outputs, expected, scales, strict=True))


def compare(
    actual: Tensor,
    expected: Tensor,
    scale: Tensor,
    terms: int,
    *,
    unit: float = _SINGLE,
    sums: float = _SINGLE,
    cancels: bool = False,
    underflow: float = 1.0,
) -> Accuracy:
    """The accuracy of `actual` beside `expected` (float64).

    Args:
        actual: what the backend gave.
        expected: r.
        scale: A.
        terms: n.
        unit: the unit roundoff of the arithmetic.
        sums: that of sums alone.
        underflow: how many times the smallest number an element may lose to underflow.
        cancels: whether terms may cancel in all elements together, so that the norm too is bounded beside that of A.
    """
    root = math.sqrt(terms)
    norm_bound = _NORM_TOLERANCE.get(actual.dtype, _NORM_TOLERANCE_FLOAT32 * root * sums / _SINGLE)
    if actual.numel() == 0:
        return Accuracy(norm_error=0.0, norm_bound=norm_bound, element_ratio=0.0, worst_index=())
    rounding = unit_roundoff(actual.dtype)
    tiny = underflow * torch.finfo(actual.dtype).smallest_normal * 2 * rounding
    got, scale = actual.detach().double(), scale.broadcast_to(expected.shape)
    error = (got - expected).abs()
    bound = 2 * rounding * expected.abs() + C * unit * root * scale + tiny
    ratio = error / bound
    finite = expected.abs() <= torch.finfo(actual.dtype).max
    same = (got == expected.to(actual.dtype).double()) | (got.isnan() & expected.isnan())
    ratio = torch.where(finite, ratio.nan_to_num(nan=math.inf), torch.where(same, 0.0, math.inf))
    norm = expected[finite].norm().item()
    below = tiny * math.sqrt(actual.numel()) + (C * unit * root * scale.norm().item() if cancels else 0.0)
    excess = max(0.0, torch.where(finite, error, 0.0).norm().item() - below)
    worst = int(ratio.argmax())
    return Accuracy(
        norm_error=excess / norm if norm else excess,
        norm_bound=norm_bound,
        element_ratio=float(ratio.flatten()[worst]),
        worst_index=tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), ratio.shape)),
    )


def unit_of_sums(dtype: torch.dtype) -> float:
    """The unit roundoff of sums of products of inputs of a dtype."""
    return _FLOAT8_SUMS if dtype in FLOAT8 else _SINGLE


def unit_roundoff(dtype: torch.dtype) -> float:
    """u(dtype): half the distance from 1 to the next number."""
    return torch.finfo(dtype).eps / 2


def assert_accurate(contract: Contract, arguments: dict[str, Any], actual: Any) -> None:
    """Raise AssertionError, with the errors beside their bounds, unless a result is accurate."""
    for name, accuracy in by_name(contract, measure(contract, arguments, actual)).items():
        if not accuracy.ok:
            raise AssertionError(f"{name}: {accuracy}")


def by_name(contract: Contract, found: tuple[Accuracy, ...]) -> dict[str, Accuracy]:
    """What was found of each output tensor, by its name; those of an output that is a list have numbers."""
    names = contract.outputs
    if len(found) != len(names):
        names = tuple(f"{names[0]}[{index}]" for index in range(len(found)))
    return dict(zip(names, found, strict=True))


def outputs_of(contract: Contract, result: Any) -> dict[str, Any]:
    """What an op returned, by the names of its outputs: tensors, and lists of them."""
    values = result if isinstance(result, tuple) else (result,)
    outputs = [value for value in values if torch.is_tensor(value) or isinstance(value, list)]
    return dict(zip(contract.outputs, outputs, strict=True))


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors in what an op returned."""
    return [value for value in (result if isinstance(result, (tuple, list)) else (result,)) if torch.is_tensor(value)]
