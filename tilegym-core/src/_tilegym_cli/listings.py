"""`tilegym backends` and `tilegym ops`: what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _tilegym_cli.tables import console, lines, show, table
from tilegym import registry
from tilegym.availability import install_hint, why_unusable
from tilegym.errors import RegistrationError
from tilegym.plugins import catalogue
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilegym.conformance.attestation import Attestation
    from tilegym.hookspecs import Backend
    from tilegym.plugins import Plugin


def backends_in_order() -> list[Backend]:
    """Every backend, in the order in which `auto` takes them."""
    return sorted(registry.backends().values(), key=lambda backend: (-backend.priority, backend.name))


def no_backend() -> str:
    """What to say, and do, where no backend is to be found."""
    reasons = [f"\n  {plugin.label}: {reason}" for plugin in catalogue().plugins if (reason := why_left_out(plugin))]
    if reasons:
        return f"No backend is loaded.{''.join(reasons)}"
    return f"No backend is installed. For the one in plain PyTorch, {install_hint('tilegym-torchref')}"


def why_left_out(plugin: Plugin) -> str | None:
    """Why a plugin counts for nothing; None: it is loaded."""
    return describe(plugin.error) if plugin.error is not None else plugin.skipped


def backends_report() -> dict[str, Any]:
    """Every backend, in the order in which `auto` takes them."""
    rows = [_backend_row(backend) for backend in backends_in_order()]
    return {"backends": rows, "no_backend": None if rows else no_backend()}


def _backend_row(backend: Backend) -> dict[str, Any]:
    owner = catalogue().owners.get(backend.name)
    reason = why_unusable(backend)
    return {
        "name": backend.name,
        "aliases": list(backend.aliases),
        "distribution": owner.distribution if owner else None,  # None: a script made it up
        "version": owner.version if owner else None,
        "device_types": list(backend.device_types),
        "priority": backend.priority,
        "auto": backend.auto,
        "usable": reason is None,
        "reason": reason,
    }


def show_backends(report: Mapping[str, Any]) -> None:
    """A table, and below it why a backend cannot run here."""
    target = console()
    rows = report["backends"]
    if not rows:
        show(target, f"{report['no_backend']}\n")
        return
    headings = ("backend", "aliases", "distribution", "devices", "priority", "auto", "usable")
    cells = [
        (
            row["name"],
            row["aliases"],
            f"{row['distribution']} {row['version']}" if row["distribution"] else None,
            row["device_types"] or "any",
            row["priority"],
            row["auto"],
            row["usable"],
        )
        for row in rows
    ]
    table(target, "Backends", headings, cells)
    lines(target, "Why not here", {row["name"]: row["reason"] for row in rows if row["reason"]})


def ops_report() -> dict[str, Any]:
    """Every op with the backends that implement it."""
    names = [backend.name for backend in backends_in_order()]
    rows = [_op_row(op, names) for op in registry.op_names()]
    attested, errors = attestations(names)
    for row in rows:
        row["attested"] = {name: str(ops[row["name"]]) for name, ops in attested.items() if row["name"] in ops}
    return {"backends": names, "no_backend": None if names else no_backend(), "ops": rows, "bad_reports": errors}


def attestations(backends: list[str]) -> tuple[dict[str, dict[str, Attestation]], dict[str, str]]:
    """By backend, what its distribution attests, and what is wrong with its report."""
    from tilegym.conformance.attestation import attested

    found: dict[str, dict[str, Attestation]] = {}
    errors = {}
    for backend in backends:
        try:
            found[backend] = attested(backend)
        except RegistrationError as error:  # noqa: PERF203 - a few backends, each on its own
            errors[backend] = str(error)
    return found, errors


def _op_row(name: str, backends: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": name,
        "summary": None,
        "dtypes": None,
        "implemented_by": [backend for backend in backends if registry.has_implementation(name, backend)],
        "error": None,
    }
    try:
        op = registry.get_op(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a spec that does not import is a row that says so
        row["error"] = describe(error)
        return row
    row["summary"] = (op.declared.__doc__ or "").strip().partition("\n")[0] or None
    if op.contract is not None:
        row["dtypes"] = [str(dtype).removeprefix("torch.") for dtype in op.contract.dtypes]
    return row


def show_ops(report: Mapping[str, Any]) -> None:
    """A matrix of ops and backends, and below it what each op is."""
    target = console()
    backends, rows = report["backends"], report["ops"]
    cells = [
        (row["name"], *(row["attested"].get(name, name in row["implemented_by"]) for name in backends), row["dtypes"])
        for row in rows
    ]
    title = "Ops, and who implements them (attested: cases that passed / cases of the contract)"
    table(target, title, ("op", *backends, "dtypes"), cells)
    lines(target, "What they are", {row["name"]: row["summary"] for row in rows if row["summary"]})
    lines(target, "Reports that cannot be read", report["bad_reports"])
    lines(target, "Contracts that do not load", {row["name"]: row["error"] for row in rows if row["error"]})
    if not backends:
        show(target, report["no_backend"])
