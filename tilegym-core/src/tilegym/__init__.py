"""TileGym: GPU kernels for deep learning, with plugins.

    import torch, tilegym
    y = tilegym.ops.softmax(torch.randn(4, 1000))

An op is a contract in this package; a backend is a pip package that fulfils some contracts; which one serves a call is
decided when the call is made, from what is installed. Importing `tilegym` imports neither torch nor any backend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilegym.__about__ import __version__

if TYPE_CHECKING:
    from tilegym import backend, config, errors, nn, ops, testing
    from tilegym.availability import assert_backend_available, get_available_backends, is_backend_available
    from tilegym.choice import get_current_backend, set_backend, use_backend
    from tilegym.events import trace
    from tilegym.explanation import explain, resolve
    from tilegym.op import (
        dispatch,
        get_available_backends_for_op,
        get_registry_info,
        has_backend_impl,
        print_registry_info,
        register_backward,
        register_impl,
    )
    from tilegym.torch_ops import register_torch_ops

__all__ = [
    "__version__",
    "assert_backend_available",
    "backend",
    "config",
    "dispatch",
    "errors",
    "explain",
    "get_available_backends",
    "get_available_backends_for_op",
    "get_current_backend",
    "get_registry_info",
    "has_backend_impl",
    "is_backend_available",
    "nn",
    "ops",
    "print_registry_info",
    "register_backward",
    "register_impl",
    "register_torch_ops",
    "resolve",
    "set_backend",
    "testing",
    "trace",
    "use_backend",
]

_HOMES = {
    "availability": ("assert_backend_available", "get_available_backends", "is_backend_available"),
    "choice": ("get_current_backend", "set_backend", "use_backend"),
    "events": ("trace",),
    "explanation": ("explain", "resolve"),
    "op": (
        "dispatch",
        "get_available_backends_for_op",
        "get_registry_info",
        "has_backend_impl",
        "print_registry_info",
        "register_backward",
        "register_impl",
    ),
    "torch_ops": ("register_torch_ops",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = frozenset({"backend", "config", "errors", "nn", "ops", "testing"})

if not TYPE_CHECKING:  # a type checker that saw it would let every misspelt name pass

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return importlib.import_module(f"tilegym.{name}")
        if name in _HOME:
            value = getattr(importlib.import_module(f"tilegym.{_HOME[name]}"), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'tilegym' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
