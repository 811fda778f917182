"""The matrix of ops and backends: who implements what, and what each backend's shipped report attests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from _tilegym_cli.listings import attestations, backends_report, ops_report
from tilegym import registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilegym.conformance.attestation import Attestation

Status = Literal["conforms", "deviates", "untested", "none"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One op on one backend."""

    status: Status
    attestation: Attestation | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OpRow:
    """One op: its line of the matrix."""

    name: str
    error: str | None
    """Why its contract does not load."""
    cells: tuple[Cell, ...]
    """In the order of the matrix's backends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Matrix:
    """All that is installed."""

    backends: tuple[Mapping[str, Any], ...]
    """As `tilegym backends --json` lists them."""
    ops: tuple[OpRow, ...]
    bad_reports: Mapping[str, str]
    """Backend → why its conformance report cannot be read."""
    no_backend: str | None
    """What to do where none is loaded."""


def matrix() -> Matrix:
    """What is installed here; peers, which are there to be compared with, promise nothing."""
    known = registry.backends()
    backends = [row for row in backends_report()["backends"] if not known[row["name"]].peer]
    names = [row["name"] for row in backends]
    listed = ops_report()
    attested, errors = attestations(names)
    return Matrix(
        backends=tuple(backends),
        ops=tuple(
            OpRow(
                name=row["name"],
                error=row["error"],
                cells=tuple(
                    _cell(name in row["implemented_by"], attested.get(name, {}).get(row["name"])) for name in names
                ),
            )
            for row in listed["ops"]
        ),
        bad_reports=errors,
        no_backend=listed["no_backend"],
    )


def _cell(implemented: bool, attestation: Attestation | None) -> Cell:
    if not implemented:
        return Cell(status="none")
    if attestation is None:
        return Cell(status="untested")
    return Cell(status="conforms" if attestation.passed == attestation.cells else "deviates", attestation=attestation)
