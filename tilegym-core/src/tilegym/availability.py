"""Whether a backend is there, whether it can run here, and if not, why."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from tilegym import plugins, registry
from tilegym.config import canonical_name
from tilegym.errors import BackendUnavailableError, RegistrationError, UnknownBackendError
from tilegym.text import describe, listed, nearest

if TYPE_CHECKING:
    import torch

    from tilegym.hookspecs import Backend

# A hint for people, no registration: which distribution brings a backend that is not installed.
_FIRST_PARTY: Final = {
    "torch": "tilegym-torchref",
    "pytorch": "tilegym-torchref",
    "cutile": "tilegym-cutile",
    "cutile-cpu": "tilegym-cutile-cpu",
}

_probed: dict[tuple[Backend, str], str | None] = {}
_asking: ContextVar[frozenset[tuple[Backend, str]]] = ContextVar("tilegym_probes", default=frozenset())


def forget() -> None:
    """Ask every probe again on next need."""
    _probed.clear()


def install_hint(distribution: str) -> str:
    """How to get one of our distributions. By path, since a stranger could claim a name that is not yet published."""
    return f"install it from a checkout of TileGym: python3 -m pip install ./{distribution}"


def find_backend(name: str, *, where: str = "") -> Backend:
    """The backend of a name or alias.

    Raises:
        BackendUnavailableError: its plugin failed to load; the cause is attached.
        UnknownBackendError: nothing provides it; the message says what to install, or what is known.
    """
    canonical = registry.backend_name(name)
    known = registry.backends()
    if canonical in known:
        return known[canonical]
    failed = plugins.catalogue().failed_names.get(canonical)
    if failed is not None and failed.error is not None:
        raise BackendUnavailableError(
            f"{where}backend {name!r}: {failed.label} failed to load: {describe(failed.error)}"
        ) from failed.error
    hidden = next((p for p in plugins.catalogue().plugins if p.skipped and canonical_name(p.name) == canonical), None)
    if hidden is not None:
        raise UnknownBackendError(f"{where}backend {name!r}: {hidden.label} is not loaded: {hidden.skipped}")
    if canonical in _FIRST_PARTY:
        distribution = _FIRST_PARTY[canonical]
        raise UnknownBackendError(
            f"{where}backend {name!r} comes with distribution {distribution}, which is not installed; "
            f"{install_hint(distribution)}"
        )
    names = set(known) | set(plugins.catalogue().names)
    raise UnknownBackendError(
        f"{where}no installed distribution provides a backend {name!r}.{nearest(canonical, names)} "
        f"Known: {listed(names)}"
    )


def left_out() -> str:
    """The plugins that are installed and not loaded, a line each."""
    reasons = {p.label: p.skipped or (p.error and describe(p.error)) for p in plugins.catalogue().plugins}
    return "".join(f"\n  not loaded: {label}: {reason}" for label, reason in reasons.items() if reason)


def probe(backend: Backend, device: torch.device) -> str | None:
    """Why a backend cannot run on a device; None if it can. Asked once per backend and device."""
    key = (backend, str(device))
    if key not in _probed:
        if key in _asking.get():
            raise RegistrationError(
                f"the probe of backend {backend.name!r} asked tilegym whether that backend can run; "
                "a probe looks at the device and the installed tools alone"
            )
        token = _asking.set(_asking.get() | {key})
        try:
            reason = backend.probe(device) if backend.probe is not None else None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a probe that fails is a reason, not a crash
            reason = f"its probe failed: {describe(error)}"
        finally:
            _asking.reset(token)
        if reason is not None and not isinstance(reason, str):
            reason = f"its probe must return None or a reason, got {reason!r}"
        _probed[key] = reason
    return _probed[key]


def _why_no_device(kind: str) -> str | None:
    """For a backend without a probe: why there is no device of this type; None if there is, or torch does not tell."""
    import torch

    try:
        is_available = torch.get_device_module(kind).is_available
    except (RuntimeError, AttributeError):
        return None
    return None if is_available() else f"torch finds no {kind} device here"


def why_unusable(backend: Backend, device: torch.device | None = None) -> str | None:
    """Why a backend cannot take tensors of a device (None, or meta, which has no memory: of any); None if it can."""
    import torch

    if device is None or device.type == "meta":
        try:
            devices = [torch.device(kind) for kind in backend.device_types] or [torch.device("cpu")]
        except RuntimeError as error:
            return f"of its device types {backend.device_types} torch does not know one: {describe(error)}"
        reasons = [_why_no_device(one.type) if backend.probe is None else probe(backend, one) for one in devices]
        return None if None in reasons else reasons[0]
    if backend.device_types and device.type not in backend.device_types:
        kinds = " or ".join(backend.device_types)
        elsewhere = why_unusable(backend)
        return f"it takes {kinds} tensors, got {device.type}" + (f" (and here: {elsewhere})" if elsewhere else "")
    return probe(backend, device)


def is_backend_available(backend: str) -> bool:
    """Whether a backend is installed and can run here; False for a name that nothing provides."""
    try:
        return why_unusable(find_backend(backend)) is None
    except (UnknownBackendError, BackendUnavailableError):
        return False


def assert_backend_available(backend: str) -> None:
    """Raise ValueError, with the reason, unless a backend is installed and can run here."""
    found = find_backend(backend)
    reason = why_unusable(found)
    if reason is not None:
        raise BackendUnavailableError(f"backend {found.name!r} cannot run here: {reason}")


def get_available_backends() -> list[str]:
    """Names of the backends that can run here, sorted."""
    return sorted(name for name, backend in registry.backends().items() if why_unusable(backend) is None)
