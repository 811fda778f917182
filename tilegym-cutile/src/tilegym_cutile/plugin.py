"""What `tilegym` learns of backend `cutile` without importing torch or cuda.tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilegym.hookspecs import Backend, Command, Conformance, ImplPack, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.results import Direction

TILEGYM_API = 1


def probe(device: torch.device) -> str | None:
    """Why cuTile kernels cannot run on `device`; None: they can."""
    from tilegym_cutile import toolchain

    return toolchain.why_unusable(device)


def facts() -> Mapping[str, str | None]:
    """Versions of all that a kernel needs, and whose tuned configurations there are."""
    from tilegym_cutile import tables, toolchain

    return toolchain.versions() | tables.facts()


def compile_ahead(calls: Sequence[tuple[Case, Direction]], device: torch.device, jobs: int) -> None:
    """Compile what calls will launch, into cuda-tile's disk cache."""
    from tilegym_cutile import ahead

    ahead.compile_calls(calls, device, jobs)


@hookimpl
def tilegym_backends() -> list[Backend]:
    """The one backend."""
    return [
        Backend(
            name="cutile",
            priority=100,
            device_types=("cuda",),
            probe=probe,
            facts=facts,
            compile_ahead=compile_ahead,
        )
    ]


@hookimpl
def tilegym_impl_packs() -> list[ImplPack]:
    """Its implementations of TileGym's own ops."""
    return [ImplPack(backend="cutile", op_pack="tilegym", package="tilegym_cutile.ops")]


@hookimpl
def tilegym_commands() -> list[Command]:
    """`tilegym compile` and `tilegym tune`."""
    return [
        Command(name="compile", target="tilegym_cutile.commands:compile_"),
        Command(name="tune", target="tilegym_cutile.tune_command:tune"),
    ]


@hookimpl
def tilegym_conformance() -> Sequence[Conformance]:
    """It takes whatever a contract has."""
    return [Conformance(backend="cutile", complete=True, report="tilegym_cutile:conformance.json")]
