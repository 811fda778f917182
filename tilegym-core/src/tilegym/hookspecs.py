"""What a plugin may declare: the hooks, and the records they return.

A distribution becomes a plugin by one entry point in its `pyproject.toml`:

    [project.entry-points.tilegym]
    mybackend = "my_package.plugin"

The module named there imports neither torch nor a kernel language, sets `TILEGYM_API = 1`, and marks its hooks:

    from tilegym.hookspecs import Backend, ImplPack, hookimpl

    TILEGYM_API = 1

    @hookimpl
    def tilegym_backends():
        return [Backend(name="mybackend", device_types=("cuda",), priority=50, probe=probe)]

    @hookimpl
    def tilegym_impl_packs():
        return [ImplPack(backend="mybackend", package="my_package.ops")]

From then on `my_package/ops/softmax.py` is that backend's implementation of `softmax`: a file name is a registration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.results import Direction

API_VERSION: Final = 1
"""What a plugin module states as `TILEGYM_API`; grows only when a hook changes its meaning."""

PROJECT: Final = "tilegym"
CORE_PACK: Final = "tilegym"
"""The pack of the ops that `tilegym-core` itself defines."""

hookspec: Final = pluggy.HookspecMarker(PROJECT)
hookimpl: Final = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """Something that implements ops."""

    name: str
    """Lower-case letters, digits and `-`, as users write it: `backend="cutile-cpu"`; `_` is read as `-`."""
    device_types: tuple[str, ...] = ()
    """Types of `torch.device` whose tensors it takes; empty: any."""
    aliases: tuple[str, ...] = ()
    """Further names it answers to."""
    priority: int = 0
    """Among usable backends `auto` takes the highest; the PyTorch reference has -100, so that it comes last."""
    auto: bool = True
    """False: only ever chosen by name, scope or environment."""
    peer: bool = False
    """True: somebody else's code, there to be compared with in benchmarks; goes with `auto=False`."""
    composite: bool = False
    """True: implementations are plain PyTorch code, through which autograd, vmap and the compiler can see."""
    probe: Callable[[torch.device], str | None] | None = None
    """Says why it cannot run on a device, or None if it can. Called once per device, on first need. Without one it can
    run wherever torch finds a device of its types."""
    setup: Callable[[], None] | None = None
    """Called before the backend's first implementation is loaded: once, but for threads that come first together, since
    no lock is held meanwhile; and again after it failed."""
    facts: Callable[[], Mapping[str, str | None]] | None = None
    """What `tilegym doctor` shows of the backend's surroundings, such as versions of its compiler; None: absent."""
    compile_ahead: Callable[[Sequence[tuple[Case, Direction]], torch.device, int], None] | None = None
    """Compiles what calls of a benchmark, forward or backward, will launch on a device, in so many processes, so that
    they need not wait for one kernel after the other. What does not compile is left for the calls to tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpPack:
    """Contracts of ops, one file each: `package/NAME.py` defines `tilegym.ops.<name>.NAME`."""

    name: str
    """A Python identifier: the namespace in `tilegym.ops`."""
    package: str
    """The import package that holds the files."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImplPack:
    """Implementations of one op pack by one backend, one file each: `package/NAME.py` implements op `NAME`."""

    backend: str
    """The backend's name; another distribution may have declared it."""
    package: str
    """The import package that holds the files; its `__init__.py` should import nothing heavy."""
    op_pack: str = CORE_PACK
    """The name of the op pack that is implemented."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A further command of the command line: `tilegym NAME`."""

    name: str
    target: str
    """ "module:function": a function as typer takes it; its module should be light to import."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conformance:
    """What a backend says of its own conformance to the contracts; `tilegym.conformance` holds it to that."""

    backend: str
    complete: bool = False
    """True: whatever an op's contract has, its implementation takes; a refused cell is a failure."""
    deviations: Mapping[str, str] = field(default_factory=dict)
    """Cells that fail, by name → the reason. One that passes after all is a failure: it has to be struck out."""
    suite: int = 1
    """The newest version of the suite that it answers for."""
    report: str | None = None
    """ "package:file.json": what `pytest --tilegym-report` wrote, shipped in the wheel; `tilegym ops` shows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchEvent:
    """One call of an op, as `tilegym.trace()` and listeners see it."""

    op: str
    backend: str
    reason: str
    """Why this backend was chosen."""
    inputs: tuple[tuple[tuple[int, ...], str, str], ...]
    """(shape, dtype, device) of each tensor argument."""
    seconds: float
    """Host time of selection and call; a kernel may still be running."""


class Hooks:
    """The hooks themselves. Each is optional, and is called once per plugin, apart from every other plugin."""

    @hookspec
    def tilegym_backends(self) -> Sequence[Backend]:
        """Backends that this distribution provides."""
        raise NotImplementedError

    @hookspec
    def tilegym_op_packs(self) -> Sequence[OpPack]:
        """Packs of op contracts that this distribution provides."""
        raise NotImplementedError

    @hookspec
    def tilegym_impl_packs(self) -> Sequence[ImplPack]:
        """Packs of implementations that this distribution provides."""
        raise NotImplementedError

    @hookspec
    def tilegym_conformance(self) -> Sequence[Conformance]:
        """What backends of this distribution say of their conformance."""
        raise NotImplementedError

    @hookspec
    def tilegym_commands(self) -> Sequence[Command]:
        """Commands that this distribution adds to `tilegym`."""
        raise NotImplementedError

    @hookspec
    def tilegym_on_dispatch(self, event: DispatchEvent) -> Any:
        """Called after each call of an op while somebody traces; errors are logged and never reach the op."""
        raise NotImplementedError
