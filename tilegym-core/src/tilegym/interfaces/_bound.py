"""Functions and module classes bound to a backend."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tilegym.availability import find_backend
from tilegym.choice import AUTO
from tilegym.config import canonical_name

if TYPE_CHECKING:
    from torch import nn

M = TypeVar("M", bound="nn.Module")


def named(backend: str | None) -> str | None:
    """What to pass to ops as `backend`: the backend's own name; None, as for "auto", if each call chooses.

    Raises:
        BackendError: no installed distribution provides the backend. Whether it can run is asked by each call.
    """
    return None if backend is None or canonical_name(backend) == AUTO else find_backend(backend).name


def bound(base: type[M], backend: str | None) -> type[M]:
    """`base`, whose forward passes its class attribute `backend` to ops; or that class with another `backend`."""
    name = named(backend)
    return base if name is None else _subclass(base, name)  # type: ignore[arg-type]  # mypy takes no type[M] for hashable


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
