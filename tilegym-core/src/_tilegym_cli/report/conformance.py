"""The matrix of ops and backends: who implements what, and what each backend's shipped report attests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from _tilegym_cli.listings import attestations, backends_report, ops_report

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
    summary: str | None
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
    """What is installed here."""
    backends = backends_report()
    listed = ops_report()
    attested, errors = attestations(listed["backends"])
    return Matrix(
        backends=tuple(backends["backends"]),
        ops=tuple(
            OpRow(
                name=row["name"],
                summary=row["summary"],
                error=row["error"],
                cells=tuple(
                    _cell(name in row["implemented_by"], attested.get(name, {}).get(row["name"]))
                    for name in listed["backends"]
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
