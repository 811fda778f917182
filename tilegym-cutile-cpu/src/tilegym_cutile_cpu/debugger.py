"""Debug mode: the kernel's own Python function runs, so that `breakpoint()`, `print` and a debugger work inside it.

Each `ct` function that it calls goes to cuTile's compiler on its own: that yields a few operations of its IR, with
every cast and promotion spelled out, which run at once, by the same handlers as always. Loops and branches are of
Python.
"""

from __future__ import annotations

import builtins
import itertools
import operator
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import cuda.tile as ct
from cuda.tile._cext import run_coroutine
from cuda.tile._compile import _create_kernel_parameters, _TileTypingHooks
from cuda.tile._dispatch_mode import DispatchMode
from cuda.tile._exception import FunctionDesc, Loc
from cuda.tile._execution import is_stub
from cuda.tile._ir.core_ops import build_tuple, sym2var
from cuda.tile._ir.ir import Builder, IRContext, Var
from cuda.tile._ir.ops import tile_impl_registry
from cuda.tile._ir.type import LooselyTypedScalar, Symbol, TileTy, TupleTy, var2sym
from cuda.tile._passes.hir2ir import call
from typing_extensions import Self

from tilegym_cutile.signature import annotated_function
from tilegym_cutile_cpu.interpreter import BYTECODE
from tilegym_cutile_cpu.lowering import Frame, Lowering
from tilegym_cutile_cpu.values import to_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import CodeType

    from cuda.tile.compilation._signature import ParameterConstraint

    from tilegym_cutile_cpu.memory import Memory

_CDIV = ct.cdiv
# Functions of `ct` that are wrapped once more for their docstring: the compiler knows them by their outer self.
_PUBLIC = {
    function.__wrapped__: function
    for function in vars(ct).values()
    if callable(function) and hasattr(function, "__wrapped__")
}
# What the compiler evaluates, and Python has evaluated already when it calls these.
_EVALUATED = {ct.static_eval, ct.static_iter, ct.ensure_constant}


def run(
    kernel: ct.kernel,
    constraints: Sequence[ParameterConstraint],
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    memory: Memory,
) -> None:
    """Run the Python function of a kernel once for each block."""
    for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0])):
        memory.begin_block((x, y, z))
        with Session(kernel, Frame([], (x, y, z), grid, memory)) as session:
            annotated_function(kernel).pyfunc(*session.parameters(constraints, arguments))


class Session(DispatchMode):
    """One block: a compiler that never finishes, and the frame in which what it emits runs."""

    def __init__(self, kernel: ct.kernel, frame: Frame) -> None:
        self._function = annotated_function(kernel)
        self._frame = frame
        self._lowering = Lowering(self._function.pyfunc.__name__)
        hooks = _TileTypingHooks()
        self._context = IRContext(log_ir_on_error=False, tileiras_version=BYTECODE, typing_hooks=hooks)
        self._builder = Builder(self._context, Loc.unknown())
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._builder)
        self._stack.enter_context(tile_impl_registry.as_current())
        self._stack.enter_context(self.as_current())
        self._stack.enter_context(patch.object(ct, "cdiv", self._cdiv))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def parameters(self, constraints: Sequence[ParameterConstraint], arguments: Sequence[Any]) -> list[Any]:
        """The kernel's arguments, as its function sees them."""
        names = list(self._function.pysig.parameters)
        locations = [Loc.unknown()] * len(names)
        annotations = self._function.parameter_annotations
        created = _create_kernel_parameters(constraints, annotations, names, locations, self._context)
        flat = [var for variables, _ in created.nonconstant_flat_vars for var in variables]
        slots = self._lowering.slots(flat)
        self._lowering.extend(self._frame.values)
        for slot, value in zip(slots, arguments, strict=True):
            self._frame.values[slot] = value
        self._execute()
        return [self._wrap(var) for var in created.aggregate_vars]

    def call_tile_function_from_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a `ct` function comes to, while this session is the current mode."""
        if func in _EVALUATED:
            return args[0]
        if func is ct.Slice.__init__:
            args[0].start, args[0].length = args[1:]
            return None
        if not is_stub(func):
            return func.__wrapped__(*args, **kwargs)  # a `@ct.function` of the user's: its Python runs too
        return self.call(_PUBLIC.get(func, func), *args, **kwargs)

    def call(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Compile a call of `func`, run what comes out, and return the result."""
        location = _caller()
        with location, self._builder.change_loc(location):
            variables = [self._variable(arg) for arg in args]
            named = {name: self._variable(value) for name, value in kwargs.items()}
            result = _finish(call(sym2var(func), variables, named))
        self._execute()
        return self._wrap(result)

    def _variable(self, value: Any) -> Var[Any]:
        """The compiler's variable for an argument that the kernel's Python passes."""
        if isinstance(value, tuple):
            return build_tuple(tuple(map(self._variable, value)))
        if isinstance(value, ct.Slice):
            bounds = [self._variable(value.start), self._variable(value.length)]
            return _finish(call(sym2var(ct.Slice), bounds, {}))
        return sym2var(value)

    def _cdiv(self, x: Any, y: Any, /) -> Any:
        """`ct.cdiv` is for the host too, where it would use Python's operators, which are wrong for unsigned tiles."""
        return self.call(_CDIV, x, y)

    def _execute(self) -> None:
        """Run the operations that were emitted since the last time."""
        operations = list(self._builder.ops)
        self._builder.ops.clear()
        region = self._lowering.operations(operations)
        self._lowering.extend(self._frame.values)
        region(self._frame)

    def value(self, var: Var[Any]) -> Any:
        """What a variable holds."""
        return self._frame.values[self._lowering.slot(var)]

    def _wrap(self, var: Var[Any]) -> Any:
        """The Python object that stands for a variable: a number, a tuple, a tile, or something with attributes."""
        ty = var.get_type()
        if isinstance(ty, TupleTy):
            return tuple(self._wrap(item) for item in var.get_aggregate().as_tuple())
        if isinstance(ty, TileTy) and not isinstance(var.get_loose_type(), LooselyTypedScalar):
            return DebugTile(var, self)
        return var2sym(var) if var.is_constant() else DebugObject(var, self)


def _finish(compilation: Coroutine[Any, Any, Any]) -> Var[Any]:
    result: Var[Any] = run_coroutine(compilation)  # type: ignore[no-untyped-call]  # cuda-tile is untyped
    return result


def _caller() -> Loc:
    """The line of the kernel, or of a helper of it, that called into cuTile."""
    frame = sys._getframe(1)  # noqa: SLF001 - how a line number is asked for
    while frame.f_back is not None and _is_machinery(frame.f_code):
        frame = frame.f_back
    code = frame.f_code
    function = FunctionDesc(code.co_name, code.co_filename, code.co_firstlineno, 1)
    return Loc(frame.f_lineno, 1, code.co_filename, function=function)


def _is_machinery(code: CodeType) -> bool:
    return code.co_filename.startswith((__file__, str(Path(ct.__file__).parent)))


class DebugObject(Symbol):
    """An array, a view, a list or a bound method of the kernel: its attributes are the compiler's."""

    def __init__(self, var: Var[Any], session: Session) -> None:
        super().__init__(var)
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return self._session.call(getattr, self, name)

    def __getitem__(self, index: Any) -> Any:
        return self._session.call(operator.getitem, self, index)

    def __len__(self) -> int:
        return int(self._session.call(len, self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._session.call(self, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._var.get_type()}>"


class DebugTile(Symbol, ct.Tile):
    """A tile with its values: it prints as numbers, and a scalar tile is a condition or an index."""

    def __init__(self, var: Var[Any], session: Session) -> None:
        super().__init__(var)
        self._session = session

    @property
    def dtype(self) -> ct.DType:
        dtype: ct.DType = self._var.get_type().tensor_dtype()
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._var.get_type().shape
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers, or one number for a scalar."""
        return to_numbers(self._session.value(self._var), self.dtype)

    def _scalar(self, convert: Callable[[Any], Any]) -> Any:
        if self.shape:
            raise TypeError(
                f"a tile of shape {self.shape} is no scalar; in debug mode, only a scalar can be a condition,"
                " an index or an operand of Python's own min and max"
            )
        return convert(self.tolist())

    def __bool__(self) -> bool:
        return bool(self._scalar(bool))

    def __int__(self) -> int:
        return int(self._scalar(int))

    def __index__(self) -> int:
        return int(self._scalar(operator.index))

    def __float__(self) -> float:
        return float(self._scalar(float))

    def __getitem__(self, index: Any) -> Any:
        return self._session.call(operator.getitem, self, index)

    def __abs__(self) -> Any:
        return self._session.call(builtins.abs, self)

    def __hash__(self) -> int:
        return id(self)

    def __format__(self, spec: str) -> str:
        def text(value: Any) -> str:
            return "[" + ", ".join(map(text, value)) + "]" if isinstance(value, list) else format(value, spec)

        return text(self.tolist())

    def __repr__(self) -> str:
        return f"<tile[{self.dtype}, {self.shape}] {self.tolist()}>"
