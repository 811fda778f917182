"""One question, asked on every eager call: are these tensors of a kind that was resolved before?

The kind is all that the choice of a backend may depend on: Python type, device, dtype, rank, whether a gradient is
needed, and the dispatch state around the call. PyTorch answers it in one C call, the guard that `torch.compile` puts
before its own code: its dispatch keys see negative and conjugate views, vmap and grad wrappers, fake, meta and sparse
tensors, and an active dispatch mode. Without that class (it is not public) every call takes the slow path and is right.
"""

from __future__ import annotations

import functools
import typing
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from tilegym.schemas import is_tensor_list

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from tilegym.op import Op

try:
    from torch._C._dynamo.guards import TensorGuards
except ImportError:  # pragma: no cover - a torch that moved it
    TensorGuards = None  # type: ignore[assignment, misc]  # asked for below

PLAIN_TYPES: Final = frozenset({torch.Tensor, torch.nn.Parameter})
_SCALARS: Final = (int, float, str, torch.dtype, torch.device, type(None))


class _Absent(torch.Tensor):
    """What stands for an argument that is no tensor; its type matches nothing that a user can pass."""


@functools.lru_cache(maxsize=1024)  # options may have any names; one that is made anew does as well
def absent(parameter: str) -> Tensor:  # noqa: ARG001 - the cache makes one for each name
    """The stand-in of one parameter. Each has its own: PyTorch's guard refuses an object that it sees twice."""
    with _disable_current_modes():  # a mode that is active when the op is first used must not get hold of it
        return torch.empty(0, device="cpu").as_subclass(_Absent)


class Guarded(NamedTuple):
    """A parameter that may hold tensors."""

    at: int
    """Its place among the declared ones."""
    name: str
    form: Literal["tensor", "optional", "list", "any"]
    """What it holds by its annotation; `shown` says what a guard sees of it."""


def guarded(op: Op) -> list[Guarded]:
    """The parameters that may hold tensors."""
    try:
        hints = typing.get_type_hints(op.declared)
    except Exception:  # noqa: BLE001 - annotations that cannot be evaluated say nothing
        hints = {}
    found = []
    for at, name in enumerate(op.positional):
        kind = hints.get(name, Any)
        leaves = set(typing.get_args(kind)) or {kind}
        if is_tensor_list(kind):
            found.append(Guarded(at, name, "list"))
        elif leaves == {torch.Tensor}:
            found.append(Guarded(at, name, "tensor"))
        elif leaves == {torch.Tensor, type(None)}:
            found.append(Guarded(at, name, "optional"))
        elif not leaves <= {int, float, bool, str, type(None), torch.dtype, Ellipsis} and not _is_int_list(kind):
            found.append(Guarded(at, name, "any"))
    return found


def _is_int_list(kind: Any) -> bool:
    parts = [part for part in (typing.get_args(kind) or (kind,)) if part not in (int, type(None))]
    return bool(parts) and all(
        set(typing.get_args(part)) <= {int, Ellipsis} and typing.get_args(part) for part in parts
    )


def shown(op: Op, args: Sequence[Any], options: Mapping[str, Any]) -> list[Tensor | Sequence[Tensor] | None]:
    """What a guard sees of a call: its arguments, by their form, and its options as any; None, which no guard accepts.

    The values of options are not looked at: what is resolved for a kind of call does not depend on them.
    """
    seen = [_shown(form, args[at], absent(name)) for at, name, form in op.guarded]
    return [*seen, *[stand_in(value, absent(name)) for name, value in options.items()]]


def _shown(form: str, value: Any, absent: Tensor) -> Tensor | Sequence[Tensor] | None:
    if form == "list":
        is_list = isinstance(value, (list, tuple))
        return value if is_list and all(isinstance(one, torch.Tensor) and not one.is_nested for one in value) else None
    if form == "any" or isinstance(value, torch.Tensor):
        return stand_in(value, absent)
    return absent if form == "optional" and value is None else None


def stand_in(value: object, absent: Tensor) -> Tensor | None:
    """What a guard sees of a value that may be anything: itself, "no tensor", or None, which no guard accepts."""
    if isinstance(value, torch.Tensor):
        return None if value.is_nested else value
    return absent if isinstance(value, _SCALARS) else None


def make_guard(values: Sequence[Tensor | Sequence[Tensor]]) -> Callable[..., bool] | None:
    """A function that tells whether as many other tensors, or lists of them, are of the same kinds.

    None if PyTorch offers none, or if a list has no members or its members are not all of one kind. Call it in a plain
    state only (`is_plain`): the dispatch state of this moment becomes part of the kind.
    """
    if TensorGuards is None:
        return None
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if len({id(tensor) for tensor in tensors}) == len(values):
        return _guard(tensors)
    if not all(isinstance(value, torch.Tensor) or value for value in values):
        return None
    # One tensor is in two places, as in fmha(x, x, x), or there are lists, which have any number of members.
    singles = [_guard([value]) if isinstance(value, torch.Tensor) else _guard_of_list(value) for value in values]

    def check(*others: Any) -> bool:
        return all(single(other) for single, other in zip(singles, others, strict=True))

    return check if check(*values) else None


def _guard_of_list(group: Sequence[Tensor]) -> Callable[..., bool]:
    """Tells whether another value is a list whose members are all of the kind of this one's first."""
    same = _guard(group[:1])
    return lambda other: isinstance(other, (list, tuple)) and bool(other) and all(map(same, other))


def _guard(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    any_size: Any = [[None] * tensor.dim() for tensor in tensors]  # a list per tensor, whatever torch's stub says
    guards = TensorGuards(*tensors, dynamic_dims_sizes=any_size, dynamic_dims_strides=any_size)
    same_kinds: Callable[..., bool] = guards.check
    if not any(tensor.requires_grad for tensor in tensors):
        return same_kinds
    grad_mode = torch.is_grad_enabled()

    def check(*values: Any) -> bool:
        """PyTorch's guard asks each tensor whether it requires a gradient, and not whether gradients are on."""
        return torch.is_grad_enabled() is grad_mode and same_kinds(*values)

    return check


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """All tensors among some values, those in lists, tuples and dicts too."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
        elif isinstance(value, dict):
            yield from tensors_in(value.values())


def has_tangent_level() -> bool:
    """Whether a forward-mode level is open: the one state that a guard does not see."""
    return forward_ad._current_level >= 0  # noqa: SLF001 - torch has no public question for it


def in_transform() -> bool:
    """Whether vmap, grad or another functorch transform is running."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001 - as above


def in_dispatch_mode() -> bool:
    """Whether a `TorchDispatchMode` is active: tracing, counting, faking."""
    return torch._C._len_torch_dispatch_stack() > 0  # noqa: SLF001 - as above


def is_batched(tensor: Tensor) -> bool:
    """Whether a tensor stands for each of a batch: under vmap, or the older one that is_grads_batched=True means."""
    functorch = torch._C._functorch  # noqa: SLF001 - as above
    return functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether a kernel may read these tensors' memory as it stands, with nobody else wanting to see the call."""
    return (
        not has_tangent_level()
        and not in_transform()
        and not in_dispatch_mode()
        and all(
            type(tensor) in PLAIN_TYPES
            and tensor.layout is torch.strided
            and tensor.device.type != "meta"
            and not tensor.is_neg()
            and not tensor.is_conj()
            and not is_batched(tensor)
            for tensor in tensors
        )
    )
