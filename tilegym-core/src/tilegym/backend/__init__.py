"""Backends by name: the functions that users of tile kernels know."""

from tilegym.availability import assert_backend_available, get_available_backends, is_backend_available
from tilegym.choice import get_current_backend, set_backend, use_backend
from tilegym.op import (
    dispatch,
    get_available_backends_for_op,
    get_registry_info,
    has_backend_impl,
    print_registry_info,
    register_impl,
)


def get_available_triton_backend() -> str:
    """The kind of Triton in use, kept for scripts that ask: always "oait", OpenAI's."""
    return "oait"


__all__ = [
    "assert_backend_available",
    "dispatch",
    "get_available_backends",
    "get_available_backends_for_op",
    "get_available_triton_backend",
    "get_current_backend",
    "get_registry_info",
    "has_backend_impl",
    "is_backend_available",
    "print_registry_info",
    "register_impl",
    "set_backend",
    "use_backend",
]
