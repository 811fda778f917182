"""The ops and the implementations that are known, found by file name or registered at run time.

Files are found without importing them and imported on first use. What a script registers with `@dispatch` or
`@register_impl` outranks a file, whichever comes first. Every change empties the ops' resolved tables.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
import threading
import warnings
import weakref
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilegym.config import canonical_name, settings
from tilegym.declarations import checked_backend_name
from tilegym.errors import PluginError, PluginWarning, RegistrationError, UnknownOpError
from tilegym.hookspecs import CORE_PACK, Backend, ImplPack
from tilegym.plugins import catalogue
from tilegym.text import describe, listed, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilegym.op import Op


@functools.lru_cache(maxsize=4096)
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function; asked for on every call that takes the slow path or autograd's."""
    return inspect.signature(function).parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Implementation:
    """One backend's implementation of one op."""

    op: str
    backend: str
    function: Callable[..., Any]
    supports: Callable[..., str | None] | None = None
    dtypes: frozenset[str] | None = None
    """Names of the dtypes it takes ("float16"); None: all that the contract has."""
    min_capability: tuple[int, int] | None = None
    """The least compute capability of a CUDA device it runs on."""
    composite: bool = False
    """Plain PyTorch code, whatever the backend's other implementations are."""
    forward: Callable[..., Any] | None = None
    """As `function`, returning the output and the contract's residuals."""
    backward: Callable[..., Any] | None = None
    """The gradients, as the contract's `Gradient` says."""
    origin: str = "file"
    """"file", or "script" if it was registered at run time."""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters of its function."""
        return parameters_of(self.function)


lock = threading.Lock()
_ops: weakref.WeakSet[Op] = weakref.WeakSet()  # also those that another of the same name has replaced
_file_ops: dict[str, Op] = {}
_script_ops: dict[str, Op] = {}
_file_implementations: dict[tuple[str, str], Implementation] = {}  # (module, op) → implementation
_script_implementations: dict[tuple[str, str], Implementation] = {}  # (op, backend) → implementation
_files: dict[str, frozenset[str]] = {}
_broken: dict[str, BaseException] = {}  # package of a plugin → why it does not import
_setups_done: set[str] = set()
generation = 0
epoch = "0"
"""Names what is registered; compiled code is guarded on it. Loading a file of a plugin does not change it."""


def changed(*, in_registry: bool = True) -> None:
    """Forget what was resolved: a registration or a choice has changed."""
    global generation, epoch  # noqa: PLW0603 - tells a resolution in flight that it is out of date
    with lock:
        generation += 1
        if in_registry:
            epoch = str(generation)
        for op in _ops:
            op.table = {}


def forget_files() -> None:
    """Look for files and run set-ups again on next use; what came from modules that are gone is forgotten too."""
    with lock:
        _files.clear()
        _broken.clear()
        _setups_done.clear()
        for name in [name for name, op in _file_ops.items() if op.declared.__module__ not in sys.modules]:
            del _file_ops[name]
        for key in [key for key in _file_implementations if key[0] not in sys.modules]:
            del _file_implementations[key]
    changed()


def state() -> Any:
    """What scripts have registered, for a test that restores it."""
    return dict(_script_ops), dict(_script_implementations)


def restore(state: Any) -> None:
    """Set what scripts have registered back to what `state()` returned."""
    ops, implementations = state
    with lock:
        _script_ops.clear()
        _script_ops.update(ops)
        _script_implementations.clear()
        _script_implementations.update(implementations)
    changed()


def files_of(package: str) -> frozenset[str]:
    """Names of the public modules in a package, found without importing them; none if the package does not import."""
    names = _files.get(package)
    if names is not None:
        return names
    try:
        path = importlib.import_module(package).__path__
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other packs still serve
        _files[package] = frozenset()
        _broken[package] = error
        _tell_of_broken(package, error)
        return frozenset()
    names = frozenset(found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_"))
    _files[package] = names
    return names


def _tell_of_broken(package: str, error: BaseException) -> None:
    owners = [
        plugin.label
        for plugin in catalogue().plugins
        if package in {*(pack.package for pack in plugin.op_packs), *(pack.package for pack in plugin.impl_packs)}
    ]
    message = f"package {package} of {' and '.join(owners)} was left out: {describe(error)}"
    if settings().strict:
        raise PluginError(message) from error
    warnings.warn(message, PluginWarning, stacklevel=2)


def why_no_pack(op: str, backend: str) -> BaseException | None:
    """What importing a package raised that a backend names for an op's pack; None: nothing."""
    packs = (pack for pack in catalogue().impl_packs if (pack.backend, pack.op_pack) == (backend, split(op)[0]))
    return next((_broken[pack.package] for pack in packs if pack.package in _broken), None)


def qualified(pack: str, name: str) -> str:
    """An op's name across packs: `softmax` in core's own, `pack.name` elsewhere."""
    return name if pack == CORE_PACK else f"{pack}.{name}"


def split(op: str) -> tuple[str, str]:
    """(pack, name) of a qualified op name."""
    pack, dot, name = op.rpartition(".")
    return (pack, name) if dot else (CORE_PACK, name)


def op_names() -> list[str]:
    """Qualified names of every op that is known, sorted; imports no spec."""
    packs = catalogue().op_packs.values()
    from_files = {qualified(pack.name, name) for pack in packs for name in files_of(pack.package)}
    return sorted(from_files | set(_script_ops))


def add_op(op: Op) -> None:
    """Register an op, from a pack's file or from a script."""
    with lock:
        _ops.add(op)
        (_script_ops if op.origin == "script" else _file_ops)[op.name] = op
    changed(in_registry=op.origin == "script")


def find_op(name: str) -> Op | None:
    """The op of a qualified name, or None: no installed pack has it; its spec is imported on first use."""
    if name in _script_ops:
        return _script_ops[name]
    pack_name, short = split(name)
    pack = catalogue().op_packs.get(pack_name)
    if pack is None or short not in files_of(pack.package):
        return None
    if name in _file_ops:
        return _file_ops[name]
    module = importlib.import_module(f"{pack.package}.{short}")
    if name not in _file_ops:
        raise RegistrationError(f"{module.__file__} defines no op {short!r}: decorate it with @dispatch({short!r})")
    return _file_ops[name]


def get_op(name: str) -> Op:
    """The op of a qualified name; its spec is imported on first use.

    Raises:
        UnknownOpError: no installed pack has it.
    """
    op = find_op(name)
    if op is None:
        names = op_names()
        raise UnknownOpError(f"no op named {name!r}.{nearest(name, names)} Known: {listed(names)}")
    return op


def pack_of_module(module: str | None) -> str | None:
    """The op pack whose package directly holds this module; None for a script."""
    package = (module or "").rpartition(".")[0]
    return next((pack.name for pack in catalogue().op_packs.values() if pack.package == package), None)


def add_implementation(implementation: Implementation) -> None:
    """Register an implementation, from a backend's file or from a script; it takes effect at once."""
    key = (implementation.function.__module__, implementation.op)
    with lock:
        first = implementation.origin == "file" and key not in _file_implementations
        if implementation.origin == "script":
            _script_implementations[implementation.op, implementation.backend] = implementation
        else:
            _file_implementations[key] = implementation
    if not first:  # a file that is read for the first time changes nothing that was resolved
        changed()


def add_backward(
    op: str, backend: str, module: str, forward: Callable[..., Any] | None, backward: Callable[..., Any]
) -> None:
    """Attach a backward to the implementation registered before it, in the same file or by a script."""
    with lock:
        for table, key in ((_file_implementations, (module, op)), (_script_implementations, (op, backend))):
            if key in table:
                table[key] = replace(table[key], forward=forward, backward=backward)
                break
        else:
            raise RegistrationError(f"{module}: register {op!r} for backend {backend!r} first, then its backward")
    changed(in_registry=table is _script_implementations)


def is_implementation_file(module: str | None) -> bool:
    """Whether a module lies in a package that some plugin names as a pack of implementations."""
    package = (module or "").rpartition(".")[0]
    return any(pack.package == package for pack in catalogue().impl_packs)


def _packs_for(op: str, backend: str) -> list[ImplPack]:
    op_pack, name = split(op)
    return [
        pack
        for pack in catalogue().impl_packs
        if pack.backend == backend and pack.op_pack == op_pack and name in files_of(pack.package)
    ]


def has_implementation(op: str, backend: str) -> bool:
    """Whether a backend says it implements an op; imports nothing."""
    return (op, backend) in _script_implementations or _packs_for(op, backend) != []


def implementation(op: str, backend: str) -> Implementation:
    """A backend's implementation of an op; its file is imported on first use.

    Raises:
        RegistrationError: the file registers nothing for this op, or two packages have a file for it.
        Exception: whatever the file or the backend's set-up raises.
    """
    found = _script_implementations.get((op, backend))
    if found is not None:
        return found
    packages = {pack.package for pack in _packs_for(op, backend)}
    if not packages:
        raise RegistrationError(f"backend {backend!r} has no implementation of {op!r}")
    if len(packages) > 1:
        raise RegistrationError(
            f"{op!r} for backend {backend!r} is claimed by packages {listed(packages)}; "
            "uninstall or disable one of them"
        )
    setup = catalogue().backends[backend].setup if backend in catalogue().backends else None
    if setup is not None and backend not in _setups_done:
        setup()
        _setups_done.add(backend)
    module = f"{packages.pop()}.{split(op)[1]}"
    importlib.import_module(module)
    found = _file_implementations.get((module, op))
    if found is None:
        raise RegistrationError(f"{module} registers nothing for op {op!r}: decorate a function with @register_impl")
    return replace(found, backend=backend)  # a package may serve several backends


def backends() -> dict[str, Backend]:
    """Every backend: those that plugins declare, and those that scripts made up by registering for them."""
    known = dict(catalogue().backends)
    for _, name in list(_script_implementations):
        if name not in known:
            known[name] = Backend(name=name, auto=False)
    return known


def backend_name(name: str) -> str:
    """The backend that a name or alias means; the name itself, made canonical, if nothing declares it."""
    canonical = canonical_name(name)
    return catalogue().names.get(canonical, canonical)


def script_backend_name(name: object) -> str:
    """As `backend_name`, for a registration at run time: a new name must be one that `backend=` can take."""
    return catalogue().names.get(checked_backend_name(name), checked_backend_name(name))
