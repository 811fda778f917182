"""Which configuration a kernel runs with: what a search found best on this device, or else what a heuristic says.

Beside a kernel stand two small functions. A heuristic picks a configuration at once; a search space yields those worth
trying, from as many of the heuristic's arguments, by name, as it needs:

    def search_space(m: int, n: int) -> Iterator[RowConfig]: ...

    @tuned("softmax", space=search_space, bucketed=("m",))
    def heuristic(m: int, n: int, itemsize: int, target: Target) -> RowConfig: ...

Host code calls `heuristic(...)` and does what the configuration says. The answer is kept, so that a call costs what
`functools.lru_cache` does. When first asked, it is the first there is of: what a running search forces (`forced`), the
user's entry, that of the wheel (`tables.py`), what the heuristic itself says. No call ever starts a search.

Arguments are numbers, strings, dtypes, kernels, None, tuples of these, and one `target`. They make up an entry's key,
in which those named in `bucketed` count as the next power of two: name there what has many values that want the same
configuration, such as how many rows there are. What decides whether a configuration is good, such as the size of an
element, has to be an argument, though the heuristic make no use of it. A configuration is a frozen dataclass of
numbers, strings, None, and tuples or dataclasses of these; it must be right for every call that has its key.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import cuda.tile as ct
import torch

from tilegym.errors import RegistrationError
from tilegym_cutile import tables
from tilegym_cutile.rows import next_power_of_2
from tilegym_cutile.signature import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from tilegym_cutile.runtime import Target

P = ParamSpec("P")
C = TypeVar("C")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Tuned:
    """A decorated heuristic."""

    name: str
    heuristic: Callable[..., Any]
    space: Callable[..., Iterable[Any]]
    bucketed: Collection[str]
    parameters: Mapping[str, Any]
    """The heuristic's, in order, with their defaults."""

    def answer(self, *args: Any, **kwargs: Any) -> Any:
        """The configuration for these arguments; see the module's docstring."""
        plain = self.heuristic(*args, **kwargs)
        question = self.question(*args, **kwargs)
        for seen in _observers:
            seen.setdefault(question)
        if question in _forced:
            return _forced[question]
        return tables.stored(type(plain), self.name, question.target, question.key) or plain

    def question(self, *args: Any, **kwargs: Any) -> Question:
        """What a call with these arguments asks, which the heuristic takes."""
        arguments = {**self.parameters, **dict(zip(self.parameters, args, strict=False)), **kwargs}
        parts = [
            f"{name}={_text(bucket(value) if name in self.bucketed else value)}"
            for name, value in arguments.items()
            if name != "target"
        ]
        return Question(function=self, target=arguments["target"], key=" ".join(parts), arguments=arguments)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A call of a tuned function. Two are equal if an entry for one answers the other."""

    function: Tuned
    target: Target
    key: str
    """The arguments but for the target, as entries tell them apart."""
    arguments: Mapping[str, Any] = field(compare=False)

    @property
    def plain(self) -> Any:
        """What the heuristic itself says."""
        return self.function.heuristic(**self.arguments)

    @property
    def space(self) -> list[Any]:
        """The configurations worth trying, each once, but for the heuristic's own."""
        wanted = inspect.signature(self.function.space).parameters
        yielded = dict.fromkeys(self.function.space(**{name: self.arguments[name] for name in wanted}))
        return [config for config in yielded if config != self.plain]


_functions: dict[str, Tuned] = {}
_forget_kept: list[Callable[[], None]] = []
_forced: dict[Question, Any] = {}
_observers: list[dict[Question, None]] = []


def tuned(
    name: str, *, space: Callable[..., Iterable[C]], bucketed: Collection[str] = ()
) -> Callable[[Callable[P, C]], Callable[P, C]]:
    """Let a heuristic answer what a search found, where it found something; see the module's docstring.

    Args:
        name: of its entries, for good: lower-case letters, digits and `_`.
        space: yields the configurations worth trying, from arguments of the heuristic, by name.
        bucketed: parameters that count as the next power of two.

    Raises:
        RegistrationError: the heuristic lacks a parameter that is named, or another module has this name.
    """

    def decorate(heuristic: Callable[P, C]) -> Callable[P, C]:
        parameters = inspect.signature(heuristic).parameters
        needed = ("target", *bucketed, *inspect.signature(space).parameters)
        if strangers := [one for one in needed if one not in parameters]:
            raise RegistrationError(f"@tuned({name!r}): {heuristic.__qualname__} has no parameter {strangers[0]!r}")
        known = _functions.get(name)
        if known is not None and known.heuristic.__module__ != heuristic.__module__:
            modules = f"{known.heuristic.__module__} and {heuristic.__module__}"
            raise RegistrationError(f"@tuned({name!r}): two modules use this name, {modules}; choose another")
        defaults = {one.name: one.default for one in parameters.values()}
        made = Tuned(name=name, heuristic=heuristic, space=space, bucketed=bucketed, parameters=defaults)
        _functions[name] = made
        return cast("Callable[P, C]", functools.update_wrapper(cached(made.answer), heuristic))

    return decorate


def cached(function: Callable[P, C]) -> Callable[P, C]:
    """`functools.lru_cache`, emptied when answers may change: for what is computed from one, such as a grid."""
    kept = functools.lru_cache(maxsize=1024)(function)
    _forget_kept.append(kept.cache_clear)
    return cast("Callable[P, C]", kept)


@contextmanager
def observed() -> Iterator[dict[Question, None]]:
    """The questions asked inside the block, by any thread, each once and in order."""
    seen: dict[Question, None] = {}
    _observers.append(seen)
    _forget_answers()
    try:
        yield seen
    finally:
        _observers[:] = [one for one in _observers if one is not seen]  # other threads' blocks end in any order


@contextmanager
def forced(question: Question, config: Any) -> Iterator[None]:
    """Inside the block a question's answer is `config`, in every thread, since a backward runs in one of its own."""
    _forced[question] = config
    _forget_answers()
    try:
        yield
    finally:
        del _forced[question]
        _forget_answers()


def keep(question: Question, config: Any) -> None:
    """From now on a question's answer is `config`, also in other processes of this user that begin later."""
    tables.put(question.function.name, question.target, question.key, config)
    reread()


def reread() -> None:
    """Answer by what lies on the disk now."""
    tables.forget()
    _forget_answers()


def _forget_answers() -> None:
    for forget in _forget_kept:
        forget()


def bucket(count: int) -> int:
    """The least power of two that is no less than a count: what fills a device at that still fits it at less."""
    return next_power_of_2(count) if count > 0 else 0


def _text(value: Any) -> str:
    """An argument as keys have it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, ct.kernel):
        return name_of(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_text, value))})"
    raise TypeError(
        f"a tuned function was given {value!r}: expected numbers, strings, dtypes, kernels, None, or tuples of these"
    )
