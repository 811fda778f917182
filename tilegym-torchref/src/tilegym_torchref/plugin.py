"""What this distribution declares to TileGym: backend `torch`."""

from collections.abc import Sequence

from tilegym.hookspecs import Backend, Conformance, ImplPack, hookimpl

TILEGYM_API = 1


@hookimpl
def tilegym_backends() -> Sequence[Backend]:
    """PyTorch itself: any device, and last in the order of `auto`."""
    return [Backend(name="torch", aliases=("pytorch",), priority=-100, composite=True)]


@hookimpl
def tilegym_impl_packs() -> Sequence[ImplPack]:
    """The files in `ops/`."""
    return [ImplPack(backend="torch", package="tilegym_torchref.ops")]


@hookimpl
def tilegym_conformance() -> Sequence[Conformance]:
    """It takes whatever a contract has."""
    return [Conformance(backend="torch", complete=True, report="tilegym_torchref:conformance.json")]
