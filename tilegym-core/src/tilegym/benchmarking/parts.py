"""Parts of large calls: what of a result is checked where float64 would take longer, and more memory, than all else.

A contract says in which ways its op may be split among processes: each then computes a part of the output from parts of
the inputs alone. So a part of a result can be held against the reference on a part of the arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.torch_ops import OUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from torch import Tensor

    from tilegym.contract import Contract, Way
    from tilegym.op import Op

CHECKED_FLOPS: Final = 2**35
CHECKED_BYTES: Final = 2**30
"""Larger calls are checked in part. Attention of one head to 16,384 keys then takes some 2 GB a tensor in float64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part of a call."""

    arguments: Mapping[str, Any]
    """Of the call that computes it; views of the whole's."""
    cuts: tuple[tuple[Way, int], ...]
    """Ways to split, each with the number of parts, of which the last is taken; one after the other."""

    def of(self, tensor: Tensor, *names: str) -> Tensor:
        """What of an input, or of an output, or of the gradient of one, belongs to it: a view.

        Args:
            tensor: the whole.
            names: its own; of an output also `OUTPUT`, which ways have for those that they do not name.
        """
        for way, count in self.cuts:
            dim = next((way[name] for name in names if name in way), None)
            if isinstance(dim, int):
                tensor = _last(tensor, dim, count)
        return tensor


def part_to_check(op: Op, contract: Contract, arguments: Mapping[str, Any]) -> Part:
    """The last part of a call that is within both bounds, or as small as the contract's ways to split lead to."""
    part = Part(arguments=arguments, cuts=())
    while True:
        given = {name: value for name, value in part.arguments.items() if name not in contract.hints}
        canonical = contract.canonical(**given)
        excess = max(contract.flops(*canonical) / CHECKED_FLOPS, contract.bytes_moved(*canonical) / CHECKED_BYTES)
        if excess <= 1 or contract.sharding is None:
            return part
        named = dict(zip(op.canonical_parameters, canonical, strict=True))
        if named.get(OUT) is not None:  # it has the whole's shape
            return part
        cut = next(_cuts(contract.sharding(*canonical), part.arguments, named, excess), None)
        if cut is None:
            return part
        way, count = cut
        split = {
            name: _last(value, dim, count)
            for name, value in part.arguments.items()
            if isinstance(dim := way.get(name), int) and value is not None
        }
        part = Part(arguments={**part.arguments, **split}, cuts=(*part.cuts, cut))


def _cuts(
    ways: Iterable[Way], arguments: Mapping[str, Any], named: Mapping[str, Any], excess: float
) -> Iterator[tuple[Way, int]]:
    """The ways that make parts of these arguments, each with the number of parts to make."""
    for way in ways:
        inputs = {name: dim for name, dim in way.items() if named.get(name) is not None}
        if any(dim == "sum" for dim in way.values()) or not all(
            isinstance(arguments.get(name), torch.Tensor) for name in inputs
        ):
            continue
        most = math.gcd(*(arguments[name].shape[dim] for name, dim in inputs.items()))
        if most > 1:
            yield way, next(n for n in range(2, most + 1) if most % n == 0 and n >= min(excess, most))


def _last(tensor: Tensor, dim: int, count: int) -> Tensor:
    size = tensor.shape[dim] // count
    return tensor.narrow(dim, tensor.shape[dim] - size, size)
