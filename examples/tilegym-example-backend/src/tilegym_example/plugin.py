"""What this distribution declares to TileGym; importing it imports neither torch nor a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym.hookspecs import Backend, Conformance, ImplPack, OpPack, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

TILEGYM_API = 1


@hookimpl
def tilegym_backends() -> Sequence[Backend]:
    """Backend `example`. It would give `probe=` to say why it cannot run on a device; this one runs on any."""
    return [Backend(name="example", priority=-50)]


@hookimpl
def tilegym_op_packs() -> Sequence[OpPack]:
    """The contracts of our own ops: `specs/NAME.py` is `tilegym.ops.example.NAME`."""
    return [OpPack(name="example", package="tilegym_example.specs")]


@hookimpl
def tilegym_impl_packs() -> Sequence[ImplPack]:
    """Who implements what: core's ops and our own by our backend, our own also by the backend of tilegym-torchref."""
    return [
        ImplPack(backend="example", package="tilegym_example.ops"),
        ImplPack(backend="example", op_pack="example", package="tilegym_example.own_ops"),
        ImplPack(backend="torch", op_pack="example", package="tilegym_example.own_ops_torch"),
    ]


@hookimpl
def tilegym_conformance() -> Sequence[Conformance]:
    """What our backend promises: it takes whatever the contracts allow."""
    return [Conformance(backend="example", complete=True)]
