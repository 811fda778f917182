"""A backend's implementation of an op, whether or not it can run here: for recorders and compile checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tilegym import registry
from tilegym.errors import RegistrationError
from tilegym.lists import each

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
        args, kwargs = self.op.arguments(self.implementation, tuple(self._canonical(arguments).values()))
        return self.implementation.function(*args, **kwargs)

    def differentiate(self, arguments: dict[str, Any]) -> Any:
        """Run the forward that keeps residuals, then the backward, for every input that has a gradient.

        The gradients of the outputs are uninitialised.
        """
        gradient, implementation = self.contract.gradient, self.implementation
        if gradient is None or implementation.backward is None:
            raise RegistrationError(f"{self.op.name} on {implementation.backend} has no backward")
        canonical = self._canonical(arguments)
        args, kwargs = self.op.arguments(implementation, tuple(canonical.values()))
        results = (implementation.forward or implementation.function)(*args, **kwargs)
        names = (*self.contract.outputs, *gradient.residual_names)
        named = canonical | dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))
        given = [each(torch.empty_like, named[name]) for name in gradient.outputs or self.contract.outputs]
        given += [named[name] for name in gradient.saved]
        constants = named | {"needs": [each(torch.is_tensor, canonical[name]) for name in gradient.inputs]}
        parameters = list(registry.parameters_of(implementation.backward))[len(given) :]
        return implementation.backward(*given, **{name: constants[name] for name in parameters})

    def _canonical(self, arguments: dict[str, Any]) -> dict[str, Any]:
        semantic = {name: value for name, value in arguments.items() if name not in self.contract.hints}
        return dict(zip(self.op.canonical_parameters, self.contract.canonical(**semantic), strict=True))


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
