"""What an op is, beyond its signature: everything that only the contract can say, as data and small functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import torch

from tilegym.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DeviceError,
    DtypeError,
    GradientError,
    ShapeError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes that every op takes unless its contract says otherwise."""
FLOAT8: Final = (torch.float8_e4m3fn, torch.float8_e5m2)
"""Those of eight bits that some ops take."""
_STRIDED: Final = torch.strided

Layout = Literal["contiguous", "transposed", "sliced", "expanded", "strided"]
Fill = Literal["normal", "positive", "special", "large", "offset", "indices"]
Way = Mapping[str, "int | Literal['sum']"]
"""One way to split a call among processes: a tensor's name → the dimension in which each has a part, or "sum" if each
has a summand. Names are those of parameters and outputs, "output" for every output that is not named. What no name says
is whole on each process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """A tensor argument of a sample, as data."""

    shape: tuple[int, ...]
    layout: Layout = "contiguous"
    """transposed: last two dimensions swapped in memory; sliced: at an odd offset of a wider buffer; expanded: stride 0
    in the first dimension; strided: last stride 2."""
    fill: Fill = "normal"
    """normal: standard normal; positive: uniform in [0.5, 1.5); special: normal with rows of -inf, NaN and +inf;
    large: normal times 100; offset: normal plus 1000; indices: N - 1, ..., 1, 0 in each row of N."""
    dtype: torch.dtype | None = None
    """None: the dtype under test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One call of an op, as data; `tilegym.testing.materialize` makes the tensors."""

    name: str
    args: Mapping[str, Any]
    """Argument name → `TensorSpec`, a list of them, or plain value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gradient:
    """For which inputs an op has gradients, and what its forward hands to its backward.

    A backend implements it as `backward(*grad_outputs, *saved, needs=...)`, which may further take canonical parameters
    that hold no tensor, by name. It returns a tensor per input, None where `needs` says that nobody wants it.

    For an input or output that is a list of tensors, each of these is a list, with an item for each member. All these
    lists are of one length, and a member of an output depends on the same members of inputs alone. In ops with lists,
    a grad_output is None for what nobody has used.
    """

    inputs: tuple[str, ...]
    """Canonical parameters that have a gradient; one that requires a gradient and is not named here is refused."""
    magnitude: Callable[..., tuple[Tensor | list[Tensor], ...]]
    """The gradients on absolute values, from the absolute gradients of the outputs and the canonical arguments in
    float64: the scale of their rounding errors, which does not cancel where they do."""
    like: tuple[str, ...]
    """For each of them, what of `saved` has its shape and dtype, which are those of the gradient; or the gradient of an
    output, as "grad_output"."""
    saved: tuple[str, ...]
    """What the backward is given: canonical parameters, and names of outputs and residuals."""
    dense: bool = False
    """Whether gradients have the strides of `torch.empty_like` of what they are like; otherwise they are contiguous."""
    outputs: tuple[str, ...] | None = None
    """Names of the outputs that have a gradient; None: all of them."""
    residual_names: tuple[str, ...] = ()
    """What the forward computes for the backward besides the output."""
    residuals: Callable[..., tuple[Tensor, ...]] | None = None
    """Empty residuals of the right shape, dtype and device, from canonical arguments."""
    reduction: Callable[..., tuple[int, ...]] | None = None
    """For each of `inputs`, how many terms are added up for one element of its gradient, or of a list's members at the
    most, from canonical arguments; None: the contract's `reduction`, or as many as the output has elements for one of
    the input."""
    rounded: Callable[..., bool] | None = None
    """From canonical arguments: whether the backward starts from values rounded to the output's dtype; None: only if
    it is given an output itself."""
    flops: Callable[..., int] | None = None
    """Floating-point operations of the backward, from canonical arguments; None: twice those of the forward."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contract:
    """The contract of one op, attached to it in its spec file: `softmax.contract = Contract(...)`."""

    canonical: Callable[..., tuple[Any, ...]]
    """Checks the arguments and returns them in canonical form: a value for each parameter of `reference`. Its own
    parameters are those of the op but for performance hints, and options with a meaning."""
    reference: Callable[..., Any]
    """The op in float64, from canonical arguments whose tensors are float64; shares no code with any backend. Its
    parameters are those of every implementation."""
    magnitude: Callable[..., Any]
    """The op on absolute values, from the same arguments: the scale of rounding errors, element by element."""
    reduction: Callable[..., int]
    """How many terms are added up for one element, from canonical arguments."""
    fake: Callable[..., Any]
    """Empty outputs of the right shape, dtype, strides and device, from canonical arguments."""
    # The functions above return a tensor or a list of them, or a tuple of such as `outputs` names.
    samples: Callable[[], Iterable[Sample]]
    """The cases that all tests share."""
    bytes_moved: Callable[..., int]
    """Bytes that must be read and written at the least, from canonical arguments."""
    flops: Callable[..., int]
    """Floating-point operations, from canonical arguments."""
    hints: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    """Performance hints → the values they may have (None: any). They change no result, and a backend may ignore them.
    Those that the op's signature does not name may be given as keyword options."""
    dtypes: tuple[torch.dtype, ...] = field(default=FLOATS)
    """The dtypes of the first input."""
    rounded_between: bool = False
    """Whether the op multiplies values that it has computed and rounded to its inputs' dtype, as attention does its
    probabilities: then the unit roundoff of that dtype, not of float32, is that of the arithmetic."""
    gradient: Gradient | None = None
    """None: the op has none."""
    outputs: tuple[str, ...] = ("output",)
    """A name for each tensor, or list of tensors, that the op returns."""
    identity: Callable[..., Tensor | None] | None = None
    """From canonical arguments: the tensor among them that is the result as it is, so that no backend need be called,
    as in dropout outside of training; None if there is something to compute."""
    dressed: Callable[..., Any] | None = None
    """From what the backend returned and the canonical arguments: what the caller gets, if not tensors alone."""
    benchmarks: Callable[[], Iterable[Sample]] | None = None
    """The cases that are timed, named by their sizes ("16384x4096"): some too large for any cache, and a few that move
    at most 4 MiB, which a quick run on a CPU takes. None: the largest of `samples`."""
    sharding: Callable[..., Iterable[Way]] | None = None
    """The ways to split a call among processes, from canonical arguments, besides each computing all of it;
    `tilegym.sharding` has those of row ops. None: DTensors are refused."""


# -- checks that every contract needs; each message says what, where, expected, got ---------------------------------


def check_tensor(
    op: str, name: str, value: object, *, dtypes: tuple[torch.dtype, ...] = FLOATS, least_rank: int = 0
) -> None:
    """`value` must be a strided tensor of one of `dtypes`, with at least so many dimensions."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentTypeError(f"{op}: {name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dtype not in dtypes:
        accepted = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise DtypeError(f"{op}: {name} must be one of {accepted}, got {str(value.dtype).removeprefix('torch.')}")
    if value.layout is not _STRIDED:
        raise ArgumentTypeError(
            f"{op}: {name} must be a dense tensor, got layout {str(value.layout).removeprefix('torch.')}; "
            "call .to_dense() first"
        )
    if value.dim() < least_rank:
        raise ShapeError(f"{op}: {name} must have at least {least_rank} dimension(s), got shape {tuple(value.shape)}")


def check_shape(op: str, name: str, value: Tensor, shape: tuple[int | None, ...]) -> None:
    """`value` must have this shape, where None may be any size."""
    if value.shape == shape:
        return
    if value.dim() != len(shape) or any(
        want is not None and got != want for got, want in zip(value.shape, shape, strict=True)
    ):
        wanted = str(tuple(shape)).replace("None", "any")
        raise ShapeError(f"{op}: {name} must have shape {wanted}, got {tuple(value.shape)}")


def check_beside(
    op: str,
    name: str,
    value: Tensor,
    first: Tensor,
    first_name: str,
    *,
    shape: tuple[int | None, ...],
    dtypes: tuple[torch.dtype, ...] = FLOATS,
) -> None:
    """`value` must be a tensor of the given shape, on the first input's device, of one of `dtypes`."""
    check_tensor(op, name, value, dtypes=dtypes)
    check_shape(op, name, value, shape)
    check_device(op, name, value, first, first_name)


def check_device(op: str, name: str, value: Tensor, first: Tensor, first_name: str) -> None:
    """`value` must lie on the first input's device."""
    if value.device != first.device:
        raise DeviceError(f"{op}: {name} must be on the device of {first_name}, {first.device}, got {value.device}")


def check_no_gradient(op: str, name: str, value: Tensor) -> None:
    """`value` must need no gradient, since the op has none for it."""
    if value.requires_grad and torch.is_grad_enabled():
        raise GradientError(f"{op}: {name} requires a gradient, and has none here; give {name}.detach()")


def check_int(op: str, name: str, value: object) -> None:
    """`value` must be an int, or one that a compiler traces."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise ArgumentTypeError(f"{op}: {name} must be an int, got {type(value).__name__}")


def check_flag(op: str, name: str, value: object) -> bool:
    """`value` must be a bool, or None, which is False."""
    if value is not None and not isinstance(value, bool):
        raise ArgumentTypeError(f"{op}: {name} must be a bool or None, got {type(value).__name__}")
    return bool(value)


def check_number(op: str, name: str, value: object) -> None:
    """`value` must be a Python number."""
    if not isinstance(value, (int, float)):
        raise ArgumentTypeError(f"{op}: {name} must be a number, got {type(value).__name__}")


def check_not_expanded(op: str, name: str, value: Tensor) -> None:
    """`value` is to be written, so its elements must not share places."""
    shared = any(size > 1 and stride == 0 for size, stride in zip(value.shape, value.stride(), strict=True))
    if shared and value.numel():
        raise ArgumentValueError(f"{op}: {name} must not be expanded: several elements would share one place")
