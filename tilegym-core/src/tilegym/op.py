"""Ops and their implementations: `@dispatch` declares the one, `@register_impl` the other."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from tilegym import registry
from tilegym.errors import RegistrationError
from tilegym.registry import Implementation
from tilegym.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tilegym.choice import Choice
    from tilegym.contract import Contract

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound="Callable[..., Any]")

Key: TypeAlias = "str | Choice | tuple[str | Choice | None, ...] | None"
Table: TypeAlias = dict[Key, "tuple[tuple[Callable[..., bool], Callable[..., Any], str], ...]"]
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class OpFunction(Protocol[P, R_co]):
    """What `@dispatch` makes of a declaration: a function of the same signature, with `backend=` added."""

    contract: Contract | None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the op on the backend chosen."""
        ...


class Op:
    """An op: its name, its signature, its contract, and the calls resolved so far."""

    __slots__ = (
        "__weakref__",
        "declared",
        "fallback_backend",
        "function",
        "guarded",
        "name",
        "origin",
        "parameters",
        "positional",
        "table",
    )

    def __init__(self, name: str, declared: Callable[..., Any], origin: str, fallback_backend: str | None) -> None:
        """Generate the public function."""
        from tilegym.eager import public_function
        from tilegym.guards import guarded

        self.name = name
        self.declared = declared
        self.origin = origin
        self.fallback_backend = fallback_backend
        self.table: Table = {}
        """Choice, or choice and names of options → guards, what to run behind each, and what a profiler calls that;
        emptied when anything changes."""
        self.parameters = tuple(inspect.signature(declared).parameters.values())
        kinds = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
        self.positional = tuple(p.name for p in self.parameters if p.kind in kinds and p.name != "backend")
        """Names of the declared parameters, without `backend` and the catch-alls."""
        self.guarded = guarded(self)
        """Those that may hold tensors."""
        self.function: Callable[..., Any] = public_function(self)

    @property
    def contract(self) -> Contract | None:
        """The contract, if the spec file has attached one."""
        return cast("Contract | None", getattr(self.function, "contract", None))

    @property
    def canonical_parameters(self) -> tuple[str, ...]:
        """Names of the parameters that implementations receive."""
        contract = self.contract
        return self.positional if contract is None else tuple(registry.parameters_of(contract.reference))

    @property
    def meaningful(self) -> tuple[str, ...]:
        """Names of what the result depends on: what the contract puts in canonical form."""
        contract = self.contract
        return self.positional if contract is None else tuple(registry.parameters_of(contract.canonical))

    @property
    def hints(self) -> set[str]:
        """Names that may be given, that change no result, and that an implementation may leave out."""
        contract = self.contract
        if contract is None:
            return set()
        return (set(self.positional) | set(contract.hints)) - set(self.meaningful)

    def options_of(self, implementation: Implementation) -> set[str]:
        """Keyword options that a call of this implementation may name."""
        own = {name for name, p in implementation.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
        own -= set(self.canonical_parameters)
        return (own | self.hints | set(self.meaningful)) - set(self.positional)

    def unknown_options(self, implementation: Implementation, options: Collection[str]) -> set[str]:
        """Those options that neither the contract nor the implementation knows."""
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in implementation.parameters.values()):
            return set()
        return set(options) - self.options_of(implementation)

    def hints_taken(self, implementation: Implementation) -> list[str]:
        """Those hints that the implementation wants to be told."""
        hints = self.hints
        return [name for name in implementation.parameters if name in hints]

    def passed_on(self, implementation: Implementation, names: Iterable[str]) -> list[str]:
        """Those of the arguments named that the implementation is told besides the canonical ones."""
        meaningful, hints, taken = self.meaningful, self.hints, implementation.parameters
        return [name for name in names if name not in meaningful and (name not in hints or name in taken)]

    def by_keyword(self, implementation: Implementation) -> list[bool]:
        """For each canonical parameter, whether the implementation is passed it by keyword: its place there differs."""
        names = [p.name for p in implementation.parameters.values() if p.kind in _POSITIONAL]
        found: list[bool] = []
        for index, name in enumerate(self.canonical_parameters):
            moved = name in implementation.parameters and names[index : index + 1] != [name]
            found.append(moved or any(found))
        return found

    def arguments(
        self, implementation: Implementation, canonical: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The canonical arguments as the implementation takes them, by position and by keyword."""
        keyword = self.by_keyword(implementation)
        at = keyword.index(True) if True in keyword else len(keyword)
        return canonical[:at], dict(zip(self.canonical_parameters[at:], canonical[at:], strict=True))

    def check_signature(self, implementation: Implementation) -> None:
        """Raise RegistrationError unless an implementation can be called with the canonical arguments."""
        signature = inspect.signature(implementation.function)
        names = self.canonical_parameters
        args, kwargs = self.arguments(implementation, names)
        try:
            signature.bind(*args, **kwargs, **dict.fromkeys(self.hints_taken(implementation)))
        except TypeError as error:
            where = f"{implementation.function.__module__}.{implementation.function.__qualname__}"
            raise RegistrationError(
                f"{where} cannot implement {self.name}: it must take ({', '.join(names)}), "
                f"and its signature is {signature}: {error}"
            ) from None


def dispatch(name: str, *, fallback_backend: str | None = None) -> Callable[[Callable[P, R_co]], OpFunction[P, R_co]]:
    """Declare an op; the decorated function gives its signature and docstring, and is itself never called.

    In a file of an op pack the declaration belongs to that pack; in a script it outranks a file of the same name.

    Args:
        name: a Python identifier, in a pack's file the file's own name.
        fallback_backend: heads the order in which others are tried when the preferred backend cannot take a call.
    """
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise RegistrationError(f"{name!r} cannot name an op: expected a public Python identifier")

    def declare(function: Callable[P, R_co]) -> OpFunction[P, R_co]:
        _check_declaration(name, function)
        pack = registry.pack_of_module(function.__module__)
        origin = "script" if pack is None else "file"
        qualified = name if pack is None else registry.qualified(pack, name)
        op = Op(qualified, function, origin, fallback_backend)
        registry.add_op(op)
        return cast("OpFunction[P, R_co]", op.function)

    return declare


def _check_declaration(name: str, function: Callable[..., Any]) -> None:
    if name.endswith(("_fwd", "_bwd", "_out")):
        raise RegistrationError(f"op {name!r}: such names are those of the torch ops behind an op; choose another")
    for p in inspect.signature(function).parameters.values():
        if p.kind is inspect.Parameter.VAR_POSITIONAL or p.name.startswith("_"):
            raise RegistrationError(
                f"op {name!r}: parameter {p} cannot be declared: an op names each of its parameters, without a leading "
                "underscore; it may take further options as **kwargs"
            )


def register_impl(
    op: str,
    backend: str,
    *,
    supports: Callable[..., str | None] | None = None,
    dtypes: Iterable[str] | None = None,
    min_capability: tuple[int, int] | None = None,
    composite: bool = False,
) -> Callable[[F], F]:
    """Register a function as a backend's implementation of an op; the function itself is returned unchanged.

    In a file of an implementation pack this is what the file is for. Anywhere else it takes effect at once and outranks
    a file; a backend name that nothing declares becomes a backend of its own, which `auto` never picks.

    Args:
        op: the op's name, `pack.name` for an op of another pack than core's.
        backend: a backend's name or alias.
        supports: gets the canonical arguments; returns None, or the reason why the call cannot be taken.
        dtypes: names of the dtypes of the first tensor that it takes, if fewer than the contract's.
        min_capability: the least CUDA compute capability it runs on.
        composite: it is plain PyTorch code: autograd, vmap and the compiler may see through it.
    """
    name = registry.script_backend_name(backend)

    def register(function: F) -> F:
        try:
            inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise RegistrationError(
                f"{function!r} cannot implement {op}: {error}; register a Python function, which may call it"
            ) from None
        from_file = registry.is_implementation_file(function.__module__)
        registry.add_implementation(
            Implementation(
                op=op,
                backend=name,
                function=function,
                supports=supports,
                dtypes=None if dtypes is None else frozenset(dtypes),
                min_capability=min_capability,
                composite=composite,
                origin="file" if from_file else "script",
            )
        )
        return function

    return register


def register_backward(op: str, backend: str, *, forward: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Register a function as the backward of the implementation registered before it; it is returned unchanged.

    Args:
        op: the op's name.
        backend: the backend's name.
        forward: as the implementation, returning (output, *residuals); for contracts whose `Gradient` has residuals.
    """

    def register(function: F) -> F:
        registry.add_backward(op, registry.script_backend_name(backend), function.__module__, forward, function)
        return function

    return register


def get_available_backends_for_op(op: str) -> list[str]:
    """Names of the backends that implement an op and can run here, sorted."""
    from tilegym.availability import why_unusable

    return sorted(
        name
        for name, backend in registry.backends().items()
        if registry.has_implementation(op, name) and why_unusable(backend) is None
    )


def has_backend_impl(op: str, backend: str) -> bool:
    """Whether a backend says it implements an op; imports nothing."""
    return registry.has_implementation(op, registry.backend_name(backend))


def get_registry_info() -> dict[str, list[str]]:
    """Each op that is known → names of the backends that implement it, sorted."""
    known = registry.backends()
    return {op: sorted(b for b in known if registry.has_implementation(op, b)) for op in registry.op_names()}


def print_registry_info() -> None:
    """Print `get_registry_info()`, an op a line."""
    for op, backends in get_registry_info().items():
        print(f"{op}: {listed(backends)}")  # noqa: T201 - printing is what this function is for
