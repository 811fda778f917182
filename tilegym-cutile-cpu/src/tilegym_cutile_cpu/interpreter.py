"""Compile a kernel for a signature, bind arguments to it, and run its blocks."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile._bytecode.version import BytecodeVersion
from cuda.tile._compile import compile_tile
from cuda.tile.compilation import (
    ArrayConstraint,
    ConstantConstraint,
    KernelSignature,
    ListConstraint,
    ScalarConstraint,
    TupleConstraint,
)

from tilegym_cutile_cpu import handlers
from tilegym_cutile_cpu.lowering import Frame, Program, lower
from tilegym_cutile_cpu.memory import Array, Buffer, Memory, Pointer
from tilegym_cutile_cpu.signature import Constraint
from tilegym_cutile_cpu.values import compute_dtype, constant

# The newest bytecode, so that every operation is allowed; naming it also means that no compiler binary is looked for.
_BYTECODE = BytecodeVersion.V_13_4

_programs: weakref.WeakKeyDictionary[FunctionType, dict[str, Program]] = weakref.WeakKeyDictionary()

assert handlers.__all__, "importing the handlers fills the tables that `lower` reads"


def program(kernel: ct.kernel, signature: KernelSignature) -> Program:
    """The lowered kernel, from the cache if it was lowered for this signature before."""
    function = kernel._annotated_function.pyfunc
    known = _programs.setdefault(function, {})
    symbol = signature.symbol
    assert symbol is not None, "signature() names the symbol, which holds every constraint"
    if symbol not in known:
        result = compile_tile(
            kernel._annotated_function,
            [signature],
            bytecode_version=_BYTECODE,
            return_final_ir=True,
            return_cubin=False,
        )
        (block,) = result.final_ir
        known[symbol] = lower(function.__name__, block)
    return known[symbol]


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


def bind(names: Sequence[str], args: Sequence[Any], signature: KernelSignature, memory: Memory) -> list[Any]:
    """The values of the kernel's flattened parameters. The arrays among the arguments become buffers of `memory`."""
    flat: list[Any] = []
    for name, arg, constraint in zip(names, args, signature.parameters, strict=True):
        flat.extend(_bind_one(name, arg, constraint, memory))
    return flat


def _bind_one(name: str, arg: Any, constraint: Constraint, memory: Memory) -> Iterator[Any]:
    if isinstance(constraint, TupleConstraint):
        for i, (item, item_constraint) in enumerate(zip(arg, constraint.items, strict=True)):
            yield from _bind_one(f"{name}[{i}]", item, item_constraint, memory)
    elif isinstance(constraint, ScalarConstraint):
        yield constant(arg, constraint.dtype, ())
    elif isinstance(constraint, ListConstraint):
        yield [_array(f"{name}[{i}]", name, item, constraint.element, memory) for i, item in enumerate(arg)]
        yield torch.tensor(len(arg), dtype=torch.int32)
    elif isinstance(constraint, ArrayConstraint):
        array = _array(name, name, arg, constraint, memory)
        index_dtype = compute_dtype(constraint.index_dtype)
        yield Pointer(array.buffer, torch.tensor(array.start))
        yield from (torch.tensor(extent, dtype=index_dtype) for extent in (*array.shape, *array.strides))
    else:
        assert isinstance(constraint, ConstantConstraint)


def _array(name: str, group: str, tensor: torch.Tensor, constraint: ArrayConstraint, memory: Memory) -> Array:
    buffer = Buffer.of(name, group, tensor.detach(), constraint.dtype)
    memory.add(buffer)
    return Array(buffer, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
