"""Schemas of torch ops, made of annotations."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


OPTIONAL_TENSORS: Final = list[torch.Tensor | None]
"""The type of a list whose members may be left out."""


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, evaluated."""
    return typing.get_type_hints(function)


def parts(kind: Any) -> set[Any]:
    """What a union or a container is made of; of any other type, itself."""
    return set(typing.get_args(kind)) or {kind}


def is_tensor_list(kind: Any) -> bool:
    """Whether a type is that of a list of tensors."""
    return typing.get_origin(kind) in (list, Sequence) and torch.Tensor in parts(kind)


def schema(parameters: Mapping[str, Any], result: Any, *, written: tuple[str, ...] = ()) -> str:
    """The schema of an op with these parameters and `backend`: `(Tensor x, *, str backend) -> Tensor`.

    Args:
        parameters: name → type.
        result: the type returned; None: nothing is.
        written: names of the tensors that the op writes.
    """
    found = [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=_schema_type(kind))
        for name, kind in parameters.items()
    ]
    found.append(inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, annotation=str))

    def prototype() -> None:
        """Only its signature counts."""

    prototype.__signature__ = inspect.Signature(found, return_annotation=result)  # type: ignore[attr-defined]  # read by infer_schema
    return torch.library.infer_schema(prototype, mutates_args=written)


def _schema_type(kind: Any) -> Any:
    """The annotation as `infer_schema` wants it: lists of ints plain and never optional."""
    found = parts(kind)
    given = found - {type(None)}
    if len(given) == 1 < len(found) and typing.get_origin(*given) is None:
        return typing.Optional[given.pop()]  # noqa: UP045 - what infer_schema reads
    if kind in (Sequence[bool], OPTIONAL_TENSORS) or torch.Tensor in found:
        return kind
    return Sequence[int] if any(typing.get_origin(part) is not None for part in found | {kind}) else kind
