"""Dataclasses from JSON, read strictly: what was cut short or edited by hand is an error that says where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from tilegym.errors import RecordError

_LARGEST: Final = 1e30
"""No figure here comes near it, in any unit."""

T = TypeVar("T")


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return get_type_hints(cls)  # once a class: a file has thousands of records


def from_json(cls: type[T], data: Any, where: str) -> T:
    """A dataclass from a JSON object that has its fields and no others, each of the type that its hint names.

    A field with a default may be missing, as in files that were written before there was such a field.

    Args:
        cls: the dataclass; its fields may be str, bool, int, float, Literal, dataclasses, tuples and mappings of these,
            None beside one of them, and Any, which is taken as it is.
        data: what `json.loads` gave.
        where: how errors name it.

    Raises:
        RecordError: a field is missing, unknown, or of another type; a number is negative or not finite.
    """
    if not isinstance(data, dict):
        raise RecordError(f"{where}: expected an object with the fields of {cls.__name__}, got {_shown(data)}")
    known = {field.name: field.default is MISSING for field in fields(cls)}  # type: ignore[arg-type]  # T is a dataclass
    needed = {name for name, needs in known.items() if needs}
    if wrong := sorted((needed - data.keys()) | (data.keys() - known.keys())):
        raise RecordError(f"{where}: fields missing or unknown: {', '.join(wrong)}")
    hints = _hints(cls)  # type: ignore[arg-type]  # mypy takes a class for something that cannot be hashed
    return cls(**{name: _value(hints[name], value, f"{where}: {name}") for name, value in data.items()})


def _value(hint: Any, data: Any, where: str) -> Any:
    """A value of the type that a field's hint names."""
    origin, args = get_origin(hint), get_args(hint)
    if NoneType in args:  # X | None
        return None if data is None else _value(args[0], data, where)
    if is_dataclass(hint):
        return from_json(hint, data, where)  # type: ignore[arg-type]  # a class, not an instance
    if origin is tuple and isinstance(data, list) and (args[-1] is Ellipsis or len(args) == len(data)):
        items = [args[0]] * len(data) if args[-1] is Ellipsis else args
        return tuple(_value(items[index], item, f"{where}[{index}]") for index, item in enumerate(data))
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(data, dict):
        return {key: _value(args[1], item, f"{where}[{key!r}]") for key, item in data.items()}
    if hint is Any or (hint in (str, bool) and type(data) is hint) or (origin is Literal and data in args):
        return data
    if hint in (int, float) and type(data) in (int, hint):
        if not 0 <= data < _LARGEST:
            raise RecordError(f"{where}: expected a number from 0 on, got {_shown(data)}")
        return hint(data)
    expected = " or ".join(map(repr, args)) if origin is Literal else getattr(hint, "__name__", str(hint))
    raise RecordError(f"{where}: expected {expected}, got {_shown(data)}")


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else f"{text[:57]}..."
