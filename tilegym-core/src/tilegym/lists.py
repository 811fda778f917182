"""Values of which some are lists, as one list of all members, and back."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Form = list["int | None"]
"""Of each value, how many members it has; None: it is no list."""


def form_of(values: Iterable[Any]) -> Form:
    """The form of some values."""
    return [len(value) if isinstance(value, (list, tuple)) else None for value in values]


def flat(values: Iterable[Any]) -> list[Any]:
    """The values, and of lists their members."""
    return [one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,))]


def filled(form: Form, members: Iterable[Any]) -> list[Any]:
    """Values of this form, of what `flat` made of them."""
    rest = iter(members)
    return [next(rest) if size is None else [*itertools.islice(rest, size)] for size in form]


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of a value, or of each member of a list."""
    return [function(one) for one in value] if isinstance(value, list) else function(value)
