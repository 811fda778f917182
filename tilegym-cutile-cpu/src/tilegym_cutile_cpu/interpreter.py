"""Compile a kernel for a signature, bind arguments to it, and run its blocks."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from cuda.tile._bytecode.version import BytecodeVersion
from cuda.tile._compile import compile_tile
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    ListConstraint,
    ScalarConstraint,
    TupleConstraint,
)

import tilegym_cutile_cpu.handlers  # noqa: F401 - fills the tables that `lower` reads
from tilegym_cutile.signature import annotated_function
from tilegym_cutile_cpu.arrays import Array, Buffer, Pointer
from tilegym_cutile_cpu.errors import LaunchError
from tilegym_cutile_cpu.lowering import Frame, Program, lower
from tilegym_cutile_cpu.values import compute_dtype, constant, scalar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from types import FunctionType

    import cuda.tile as ct
    from cuda.tile._ir.ir import Block
    from cuda.tile.compilation._signature import ParameterConstraint

    from tilegym_cutile_cpu.memory import Memory

# The newest bytecode, so that every operation is allowed; naming it also means that no compiler binary is looked for.
BYTECODE = BytecodeVersion.V_13_4

_programs: weakref.WeakKeyDictionary[FunctionType, dict[Hashable, Program]] = weakref.WeakKeyDictionary()


def program(kernel: ct.kernel, constraints: Sequence[ParameterConstraint]) -> Program:
    """The lowered kernel, from the cache if it was lowered for such arguments before."""
    function = annotated_function(kernel).pyfunc
    known = _programs.setdefault(function, {})
    general = [_generalized(constraint) for constraint in constraints]
    key = tuple(map(_key, general))
    if key not in known:
        known[key] = lower(function.__name__, final_ir(kernel, general))
    return known[key]


def final_ir(kernel: ct.kernel, constraints: Sequence[ParameterConstraint]) -> Block:
    """What the compiler's front end makes of a kernel: typed operations, with every cast and broadcast spelled out."""
    result = compile_tile(
        annotated_function(kernel),
        [KernelSignature(constraints, CallingConvention.cutile_python_v2())],
        bytecode_version=BYTECODE,
        return_final_ir=True,
        return_cubin=False,
    )
    blocks: Sequence[Block] = result.final_ir or ()
    return blocks[0]


def _generalized(constraint: ParameterConstraint) -> ParameterConstraint:
    """The constraint without what only speeds up machine code, so that more arguments share a program."""
    if isinstance(constraint, TupleConstraint):
        return TupleConstraint([_generalized(item) for item in constraint.items])
    if isinstance(constraint, ListConstraint) and isinstance(constraint.element, ArrayConstraint):
        element = _generalized_array(constraint.element)
        return ListConstraint(element, alias_groups=constraint.alias_groups, elements_may_alias=True)
    return _generalized_array(constraint) if isinstance(constraint, ArrayConstraint) else constraint


def _generalized_array(constraint: ArrayConstraint) -> ArrayConstraint:
    return ArrayConstraint(
        constraint.dtype,
        constraint.ndim,
        index_dtype=constraint.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=constraint.alias_groups,
        may_alias_internally=True,
        stride_constant=constraint.stride_constant,
        shape_constant=constraint.shape_constant,
    )


def _key(constraint: ParameterConstraint) -> Hashable:
    """A constraint as a dictionary key. Constants differ by type, and since NaN equals nothing, by their text."""
    if isinstance(constraint, TupleConstraint):
        return tuple(map(_key, constraint.items))
    if isinstance(constraint, ConstantConstraint):
        return type(constraint.value), repr(constraint.value)
    return constraint


def run(code: Program, grid: tuple[int, int, int], arguments: Sequence[Any], memory: Memory) -> Iterator[None]:
    """Run the blocks of a grid one after another, x fastest. Yields after each block."""
    frame = Frame(list(code.initial), (0, 0, 0), grid, memory)
    for slot, value in zip(code.parameters, arguments, strict=True):
        frame.values[slot] = value
    if 0 in grid:
        return
    code.prologue(frame)
    for z, y, x in itertools.product(range(grid[2]), range(grid[1]), range(grid[0])):
        block = (x, y, z)
        memory.begin_block(block)
        code.body(Frame(frame.values.copy(), block, grid, memory))
        yield


def bind(
    names: Sequence[str], args: Sequence[Any], constraints: Sequence[ParameterConstraint], memory: Memory
) -> list[Any]:
    """The values of the kernel's flattened parameters. The arrays among the arguments become buffers of `memory`."""
    flat: list[Any] = []
    for name, arg, constraint in zip(names, args, constraints, strict=True):
        flat.extend(_bind_one(name, arg, constraint, memory))
    return flat


def _bind_one(name: str, arg: Any, constraint: ParameterConstraint, memory: Memory) -> Iterator[Any]:
    if isinstance(constraint, TupleConstraint):
        for i, (item, item_constraint) in enumerate(zip(arg, constraint.items, strict=True)):
            yield from _bind_one(f"{name}[{i}]", item, item_constraint, memory)
    elif isinstance(constraint, ScalarConstraint):
        yield constant(arg, constraint.dtype, ())
    elif isinstance(constraint, ListConstraint):
        yield [_array(f"{name}[{i}]", name, item, constraint.element, memory) for i, item in enumerate(arg)]
        yield scalar(len(arg), torch.int32)
    elif isinstance(constraint, ArrayConstraint):
        array = _array(name, name, arg, constraint, memory)
        index_dtype = compute_dtype(constraint.index_dtype)
        yield Pointer(array.buffer, scalar(array.start))
        yield from (scalar(extent, index_dtype) for extent in (*array.shape, *array.strides))
    elif not isinstance(constraint, ConstantConstraint):
        raise LaunchError(f"argument '{name}': {type(constraint).__name__} is not supported")


def _array(name: str, group: str, tensor: torch.Tensor, constraint: ParameterConstraint, memory: Memory) -> Array:
    if not isinstance(constraint, ArrayConstraint):
        raise LaunchError(f"argument '{name}': {type(constraint).__name__} is not supported")
    buffer = Buffer.of(name, group, tensor.detach(), constraint.dtype)
    memory.add(buffer)
    return Array(buffer, int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride()))
