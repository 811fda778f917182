"""What a backend's distribution attests: the report of a conformance run that it ships."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources

from tilegym.conformance.cells import declared
from tilegym.errors import RegistrationError
from tilegym.text import describe


@dataclass(frozen=True, kw_only=True, slots=True)
class Attestation:
    """How many cells of one op conform on one backend."""

    passed: int
    cells: int
    """Cells tested, those that passed among them."""
    device: str
    """Where they ran."""

    def __str__(self) -> str:
        """`352/352`."""
        return f"{self.passed}/{self.cells}"


def attested(backend: str) -> dict[str, Attestation]:
    """What the backend's distribution attests, by op; nothing if it ships no report.

    Raises:
        RegistrationError: the report that it names is missing or is none.
    """
    where = declared(backend).report
    if where is None:
        return {}
    package, _, file = where.partition(":")
    try:
        report = json.loads(resources.files(package).joinpath(file).read_text(encoding="utf-8"))
        ops = report["backends"].get(backend, {})
        return {
            op: Attestation(
                passed=counts["passed"],
                cells=counts["passed"] + sum(len(v) for k, v in counts.items() if k != "passed"),
                device=report["device"],
            )
            for op, counts in ops.items()
        }
    except (OSError, ImportError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RegistrationError(f"backend {backend!r}: its conformance report {where}: {describe(error)}") from error
