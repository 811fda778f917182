"""A backend's implementation of an op, whether or not it can run here: for recorders and compile checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilegym import registry
from tilegym.errors import RegistrationError

if TYPE_CHECKING:
    from tilegym.contract import Contract
    from tilegym.op import Op
    from tilegym.registry import Implementation


@dataclass(frozen=True, slots=True)
class LoadedImplementation:
    """Call it with a sample's arguments by name: they are checked, put in canonical form, and passed on."""

    op: Op
    implementation: Implementation
    contract: Contract

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """Run the implementation's function."""
        semantic = {name: value for name, value in arguments.items() if name not in self.contract.hints}
        args, kwargs = self.op.arguments(self.implementation, self.contract.canonical(**semantic))
        return self.implementation.function(*args, **kwargs)


def load_implementation(op: str, backend: str) -> LoadedImplementation:
    """Import a backend's implementation of an op without asking whether the backend is usable.

    Raises:
        UnknownOpError: nothing has this name.
        RegistrationError: the backend does not implement it, or it has no contract.
    """
    found = registry.get_op(op)
    if found.contract is None:
        raise RegistrationError(f"op {op!r} has no contract")
    return LoadedImplementation(found, registry.implementation(op, backend), found.contract)
