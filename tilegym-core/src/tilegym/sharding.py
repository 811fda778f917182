"""Ops over several processes: calls with DTensors, the tensors of `torch.distributed.tensor`.

A contract says in which ways its op may be split, so that each process computes its part of the output from its parts
of the inputs alone. A call takes the way that moves least between processes, has PyTorch move what lies otherwise, and
calls the op on the parts: on whichever backend takes that call. So every placement gives the right result, and every
backend has this. PyTorch's own `register_sharding` would not do: it knows no op that returns a list, as `NAME_bwd` is
one, and it takes calls for the same that differ in a list of ints, such as `normalized_shape`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from tilegym.errors import ArgumentTypeError, ArgumentValueError, NoImplementationError
from tilegym.guards import tensors_in
from tilegym.torch_ops import OUT, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Placement

    from tilegym.contract import Way
    from tilegym.op import Op

OUTPUT: Final = "output"
_WHOLE: Final[Way] = {}


def rows(*names: str, within: int | Callable[..., int] = 1) -> Callable[..., Iterator[Way]]:
    """The ways of an op on rows: any dimension but the last `within` may be split.

    Args:
        names: parameters split alike, and like each output; the first is the op's first canonical parameter. What is
            not named, such as weights, is whole on each process.
        within: how many dimensions make up a row, or a function of the canonical arguments that tells; 0 for an
            elementwise op.
    """

    def ways(*canonical: Any) -> Iterator[Way]:
        last = within if isinstance(within, int) else within(*canonical)
        for dim in range(canonical[0].dim() - last):
            yield dict.fromkeys((*names, OUTPUT), dim)

    return ways


def matrix_product(first: str, second: str) -> Callable[..., tuple[Way, ...]]:
    """The ways of (M, K) @ (K, N): split along M, along N, or along K, which leaves each process a summand."""
    ways: tuple[Way, ...] = (
        {first: 0, OUTPUT: 0},
        {second: 1, OUTPUT: 1},
        {first: 1, second: 0, OUTPUT: "sum"},
    )
    return lambda *_: ways


def whole(*_: Any) -> tuple[Way, ...]:
    """The ways of an op that cannot be split: each process computes all of it."""
    return ()


def is_distributed(kinds: Iterable[type]) -> bool:
    """Whether one of these types is that of a DTensor; imports nothing."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and any(issubclass(kind, module.DTensor) for kind in kinds)


def on_parts(op: Op, backend: str | None) -> Callable[[dict[str, Any]], Any]:
    """Calls an op whose arguments, by name, hold DTensors, on each process's parts; the outputs are DTensors.

    Raises:
        NoImplementationError: the contract does not say how the op may be split.
        ArgumentTypeError: of a call whose tensors are not all DTensors.
        ArgumentValueError: of one whose DTensors are on different meshes.
    """
    contract, meaningful, names = op.contract, op.meaningful, op.canonical_parameters
    if contract is None or contract.sharding is None:
        raise NoImplementationError(
            f"{op.name}: an argument is a DTensor, and the op's contract does not say how the op may be split; call it "
            "on whole tensors, .full_tensor(), or on each process's own, .to_local()"
        )
    op_name, function, check, ways_of = op.name, op.function, contract.canonical, contract.sharding
    fake, outputs = contract.fake, contract.outputs

    def call(arguments: dict[str, Any]) -> Any:
        tensors = _checked(op_name, arguments)
        named = dict(zip(names, check(**{n: arguments[n] for n in meaningful if n in arguments}), strict=True))
        out = named.get(OUT)  # given, or the input of a call in place
        if OUT in named:
            named[OUT] = None
        given = {name: value for name, value in arguments.items() if name != OUT}
        tensors.pop(OUT, None)
        mesh = next(iter(tensors.values())).device_mesh
        ways = [_least_moved((_WHOLE, *ways_of(*named.values())), tensors, at) for at in range(mesh.ndim)]
        parts = {name: _part(tensor, name, ways) for name, tensor in tensors.items()}
        result = function(**{**given, **parts}, backend=backend)
        wholes = [*tensors_in([fake(*[_meta(value) for value in named.values()])])]
        placements = [[_placement(way.get(name, way.get(OUTPUT))) for way in ways] for name in outputs]
        return written(_joined(result, wholes, placements, mesh), out)

    return call


def _checked(op: str, arguments: dict[str, Any]) -> dict[str, DTensor]:
    """The tensors among the arguments, if all are DTensors on one mesh."""
    from torch.distributed.tensor import DTensor

    found = {name: value for name, value in arguments.items() if isinstance(value, DTensor)}
    others = {name: [*tensors_in([value])] for name, value in arguments.items() if name not in found}
    for name, inside in others.items():
        if is_distributed([type(tensor) for tensor in inside]):
            raise ArgumentTypeError(
                f"{op}: {name} holds DTensors in a list, which are not split; call the op on each process's own, "
                ".to_local()"
            )
    first = next(iter(found))
    for name, inside in others.items():
        if inside:
            raise ArgumentTypeError(
                f"{op}: {name} must be a DTensor, as {first} is, got a plain one. If it is the same on each process: "
                f"distribute_tensor({name}, {first}.device_mesh, [Replicate()] * {first}.device_mesh.ndim)"
            )
    mesh = found[first].device_mesh
    for name, value in found.items():
        if value.device_mesh != mesh:
            raise ArgumentValueError(f"{op}: {name} must be on the mesh of {first}, {mesh}, got {value.device_mesh}")
    return found


def _least_moved(ways: tuple[Way, ...], tensors: dict[str, DTensor], at: int) -> Way:
    """The way for one dimension of the mesh that moves the fewest elements; the first of equals."""
    best, least = ways[0], -1
    for way in ways:
        moved = sum([_moved(tensor, at, _placement(way.get(name))) for name, tensor in tensors.items()])
        if least < 0 or moved < least:
            best, least = way, moved
    return best


def _moved(tensor: DTensor, at: int, wanted: Placement) -> int:
    placed = tensor.placements[at]
    if placed == wanted:
        return 0
    return 1 if placed.is_replicate() else 1 + tensor.numel()  # of what is whole, each process takes its part


def _placement(dim: int | Literal["sum"] | None) -> Placement:
    from torch.distributed.tensor import Partial, Replicate, Shard

    if dim is None:
        return Replicate()
    return Partial() if dim == "sum" else Shard(dim)


def _part(tensor: DTensor, name: str, ways: list[Way]) -> Tensor:
    """This process's part. If the call is split and this tensor is not, each process has a share of its gradient."""
    wanted = [_placement(way.get(name)) for way in ways]
    gradients = [_placement("sum" if way and name not in way else way.get(name)) for way in ways]
    if tensor.placements != tuple(wanted):  # else not even in name: in its backward it would add the shares up
        tensor = tensor.redistribute(placements=wanted)
    part: Tensor = tensor.to_local(grad_placements=gradients)
    return part


def _meta(value: Any) -> Any:
    """As the whole, and empty, for the contract's fake."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _joined(result: Any, wholes: list[Tensor], placements: list[list[Placement]], mesh: DeviceMesh) -> Any:
    """The same with each tensor, this process's part of an output, as a DTensor; `wholes` have shapes and strides."""
    from torch.distributed.tensor import DTensor

    joined, outputs = [], iter(zip(wholes, placements, strict=True))
    for value in result if isinstance(result, tuple) else (result,):
        if isinstance(value, torch.Tensor):
            like, placed = next(outputs)
            joined.append(DTensor.from_local(value, mesh, placed, shape=like.shape, stride=like.stride()))
        else:
            joined.append(value)
    return tuple(joined) if isinstance(result, tuple) else joined[0]
