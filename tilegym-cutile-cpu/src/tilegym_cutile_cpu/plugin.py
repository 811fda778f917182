"""What this distribution declares to TileGym: backend `cutile-cpu`, the kernels of `tilegym-cutile` on CPU tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym.hookspecs import Backend, Conformance, ImplPack, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

TILEGYM_API = 1


def probe(device: torch.device) -> str | None:  # noqa: ARG001 - a probe takes the device
    """Why the interpreter cannot run: cuda-tile or tilegym-cutile cannot be imported."""
    try:
        from tilegym_cutile_cpu import backend  # noqa: F401 - whether it imports is the question
    except ImportError as error:
        return f"{error}; the interpreter needs cuda-tile and tilegym-cutile, which have no wheels for this platform"
    return None


def setup() -> None:
    """Let `tilegym_cutile.runtime` launch on CPU tensors."""
    from tilegym_cutile_cpu import backend

    backend.install()


@hookimpl
def tilegym_backends() -> Sequence[Backend]:
    """Never chosen by `auto`: an interpreter is for tests and debugging."""
    return [Backend(name="cutile-cpu", device_types=("cpu",), auto=False, probe=probe, setup=setup)]


@hookimpl
def tilegym_impl_packs() -> Sequence[ImplPack]:
    """The same files as backend `cutile`; this distribution holds no op code."""
    return [ImplPack(backend="cutile-cpu", package="tilegym_cutile.ops")]


@hookimpl
def tilegym_conformance() -> Sequence[Conformance]:
    """It takes whatever a contract has."""
    return [Conformance(backend="cutile-cpu", complete=True, report="tilegym_cutile_cpu:conformance.json")]
