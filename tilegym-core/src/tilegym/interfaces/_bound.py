"""Module classes bound to a backend."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tilegym.availability import find_backend

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M", bound="nn.Module")


def bound(base: type[M], backend: str | None) -> type[M]:
    """`base`, whose class attribute `backend` its forward passes to ops; or that class with another `backend`.

    Raises:
        BackendError: no installed distribution provides the backend. Whether it can run is asked by each call.
    """
    return base if backend is None else _subclass(base, find_backend(backend).name)  # type: ignore[arg-type]  # mypy takes no type[M] for hashable


@functools.cache
def _subclass(base: type[M], backend: str) -> type[M]:
    """The one subclass of `base` for this backend; its instances can be copied and saved, though no module holds it."""

    def reduce(self: M, protocol: Any) -> Any:
        if type(self) is made:
            return _empty, (base, backend), self.__dict__
        return base.__reduce_ex__(self, protocol)

    namespace = {"backend": backend, "__module__": base.__module__, "__doc__": base.__doc__, "__reduce_ex__": reduce}
    made = cast("type[M]", type(base.__name__, (base,), namespace))
    return made


def _empty(base: type[M], backend: str) -> M:
    """An instance for `__setstate__` to fill."""
    made = bound(base, backend)
    return made.__new__(made)
