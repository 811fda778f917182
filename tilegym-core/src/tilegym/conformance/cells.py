"""What is tested: each op that a backend implements x sample x dtype, and small samples in every memory layout."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, get_args

from tilegym import registry
from tilegym.contract import Layout, Sample, TensorSpec
from tilegym.hookspecs import Conformance
from tilegym.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_LARGEST_RELAID: Final = 4096  # elements: beyond that, layouts cost time and find nothing new


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One call to test."""

    op: str
    sample: Sample
    dtype: torch.dtype
    gradient: bool = False
    """Whether the gradients are tested, or the result."""

    @property
    def name(self) -> str:
        """A test's id, and the cell's name in reports and deviations."""
        what = f"{self.op}-{str(self.dtype).removeprefix('torch.')}-{self.sample.name}"
        return f"{what}-gradient" if self.gradient else what


def declared(backend: str) -> Conformance:
    """What the backend's plugin says of its conformance; by default, that it leaves out what it likes."""
    for plugin in catalogue().plugins:
        for one in plugin.conformance if plugin.error is None else ():
            if registry.backend_name(one.backend) == backend:
                return one
    return Conformance(backend=backend)


def ops_of(backend: str) -> list[str]:
    """Names of the ops with a contract that a backend implements."""
    names = [op for op in registry.op_names() if registry.has_implementation(op, backend)]
    return [name for name in names if registry.get_op(name).contract is not None]


def cells_of(backend: str) -> Iterator[Cell]:
    """Every cell of a backend."""
    for op in ops_of(backend):
        contract = registry.get_op(op).contract
        assert contract is not None  # ops_of has seen to it; for the type checker
        for sample in contract.samples():
            for index, relaid in enumerate(_layouts(sample)):
                # The sample itself in each dtype; of other layouts, which are another matter, each in one, by turns.
                for dtype in contract.dtypes if index == 0 else [contract.dtypes[index % len(contract.dtypes)]]:
                    yield Cell(op=op, sample=relaid, dtype=dtype)
                    if contract.gradient is not None and _is_differentiable(relaid):
                        yield Cell(op=op, sample=relaid, dtype=dtype, gradient=True)


def _is_differentiable(sample: Sample) -> bool:
    """Not where `out` or, in place, a leaf is written, nor at points that are not finite."""
    written = sample.args.get("out") is not None or sample.args.get("inplace", False)
    return not written and all(spec.fill != "special" for spec in tensor_specs(sample))


def tensor_specs(sample: Sample) -> Iterator[TensorSpec]:
    """The tensors of a sample, those in lists too."""
    for value in sample.args.values():
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, TensorSpec))


def _layouts(sample: Sample) -> Iterator[Sample]:
    """The sample, and if it is small, the same with its tensors laid out in every other way."""
    yield sample
    # A tensor of no dimension has one layout only.
    specs = {name: value for name, value in sample.args.items() if isinstance(value, TensorSpec) and value.shape}
    small = all(0 < math.prod(spec.shape) <= _LARGEST_RELAID for spec in specs.values())
    if not specs or not small or any(spec.layout != "contiguous" for spec in specs.values()):
        return
    for layout in get_args(Layout):
        if layout == "contiguous":
            continue
        relaid: dict[str, Any] = {name: replace(spec, layout=layout) for name, spec in specs.items()}
        if layout == "expanded" and "out" in relaid:
            continue  # an output whose elements share memory has no right content
        yield Sample(name=f"{sample.name}-{layout}", args={**sample.args, **relaid})
