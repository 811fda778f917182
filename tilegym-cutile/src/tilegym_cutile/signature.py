"""The signature of a launch: what cuTile's compiler may assume about each argument.

`ct.launch` derives it in C from CUDA tensors. These are the same rules in Python, for tensors on any device: CPU, meta
and fake tensors have a signature too, so a kernel can be compiled or interpreted for arguments that no GPU ever saw.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch
from cuda.tile._annotated_function import (
    AnnotatedFunction,
    HomogeneousTupleNode,
    LeafAnnotationNode,
    ParameterAnnotationNode,
)
from cuda.tile._ir.typing_support import to_dtype
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    ListConstraint,
    ScalarConstraint,
    TupleConstraint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Constraint = ArrayConstraint | ConstantConstraint | ListConstraint | ScalarConstraint | TupleConstraint

_ALIGNMENT = 16  # bytes: what a tensor core load wants, and what every allocator gives a storage
_SPECIALIZED_RANK = 5  # arrays of a higher rank get no per-dimension assumptions


def signature(kernel: ct.kernel, args: Sequence[Any]) -> KernelSignature:
    """The signature under which `ct.launch` would compile `kernel` for `args`, its symbol included."""
    unnamed = KernelSignature(constraints(kernel, args), CallingConvention.cutile_python_v2())
    return unnamed.with_mangled_symbol(name_of(kernel))


def constraints(kernel: ct.kernel, args: Sequence[Any]) -> list[Constraint]:
    """What the compiler may assume about each argument."""
    annotated = annotated_function(kernel)
    names = list(annotated.pysig.parameters)
    if len(args) != len(names):
        raise TypeError(f"takes {len(names)} arguments {tuple(names)}, got {len(args)}")
    return [
        _constraint(arg, node, name)
        for arg, node, name in zip(args, annotated.parameter_annotations, names, strict=True)
    ]


def annotated_function(kernel: ct.kernel) -> AnnotatedFunction:
    """The Python function of a kernel, with what its parameters' annotations say."""
    function: AnnotatedFunction = kernel._annotated_function  # noqa: SLF001 - no public name
    return function


def name_of(kernel: ct.kernel) -> str:
    """The name of a kernel: that of its Python function."""
    return str(annotated_function(kernel).pyfunc.__name__)


def _constraint(value: Any, node: ParameterAnnotationNode, name: str) -> Constraint:
    if isinstance(value, tuple):
        items = _item_nodes(node, len(value), name)
        return TupleConstraint(
            [_constraint(v, n, f"{name}[{i}]") for i, (v, n) in enumerate(zip(value, items, strict=True))]
        )
    if not isinstance(node, LeafAnnotationNode):
        raise TypeError(f"argument '{name}' is annotated as a tuple, got {type(value).__name__}")
    if isinstance(value, torch.Tensor):
        return _array_constraint([value], node.array)
    if isinstance(value, list):
        if not value or not all(isinstance(item, torch.Tensor) for item in value):
            raise TypeError(f"argument '{name}' is a list; expected a non-empty list of tensors")
        element = _array_constraint(value, node.list.element if node.list else None)
        return ListConstraint(element, alias_groups=(), elements_may_alias=True)
    return _number_constraint(value, node, name)


def _number_constraint(value: Any, node: LeafAnnotationNode, name: str) -> Constraint:
    if not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"argument '{name}' is a {type(value).__name__}; cuTile kernels take tensors, bools, ints, floats,"
            " lists of tensors, and tuples of these"
        )
    if node.constant:
        return ConstantConstraint(value)
    if isinstance(value, bool):
        return ScalarConstraint(ct.bool_)
    if isinstance(value, int):
        return ScalarConstraint(node.scalar.dtype if node.scalar else ct.int32)
    return ScalarConstraint(ct.float32)


def _item_nodes(node: ParameterAnnotationNode, length: int, name: str) -> Sequence[ParameterAnnotationNode]:
    if isinstance(node, LeafAnnotationNode):
        return [node] * length
    if isinstance(node, HomogeneousTupleNode):
        return [node.each] * length
    if len(node.items) != length:
        raise TypeError(f"argument '{name}' is annotated as a tuple of {len(node.items)} items, got {length}")
    return node.items


def _array_constraint(tensors: Sequence[torch.Tensor], annotation: ct.ArrayAnnotation | None) -> ArrayConstraint:
    """What holds for every one of `tensors`: the items of a list argument share one constraint."""
    annotation = annotation or ct.ArrayAnnotation()
    first = tensors[0]
    if any(t.ndim != first.ndim or t.dtype != first.dtype for t in tensors):
        raise TypeError("the tensors of a list argument must have one dtype and one rank")
    dtype, ndim = to_dtype(first.dtype), first.ndim
    bits = dtype.bitwidth
    aligned_elements = _ALIGNMENT * 8 // bits if _ALIGNMENT * 8 % bits == 0 else 1

    def everywhere(holds: Callable[[torch.Tensor, int], bool]) -> list[bool]:
        return [ndim <= _SPECIALIZED_RANK and all(holds(t, i) for t in tensors) for i in range(ndim)]

    static_shape = {axis % ndim for axis in annotation.static_shape_dims}
    static_stride = {axis % ndim for axis in annotation.static_stride_dims}
    unit_stride = everywhere(lambda t, i: not static_stride and t.stride(i) == 1)
    unit_shape = everywhere(lambda t, i: not static_shape and t.shape[i] == 1)
    aligned_stride = everywhere(lambda t, i: (t.stride(i) * bits) % (_ALIGNMENT * 8) == 0)
    divisible_shape = everywhere(lambda t, i: t.shape[i] % 16 == 0 and (t.shape[i] * bits) % 8 == 0)

    strides = [first.stride(i) if i in static_stride else 1 if unit_stride[i] else None for i in range(ndim)]
    shape = [first.shape[i] if i in static_shape else 1 if unit_shape[i] else None for i in range(ndim)]
    return ArrayConstraint(
        dtype,
        ndim,
        index_dtype=annotation.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=not all(map(_elements_are_distinct, tensors)),
        stride_constant=strides,
        shape_constant=shape,
        stride_divisible_by=[
            aligned_elements if a and s is None else 1 for a, s in zip(aligned_stride, strides, strict=True)
        ],
        shape_divisible_by=[16 if d and s is None else 1 for d, s in zip(divisible_shape, shape, strict=True)],
        base_addr_divisible_by=min(_base_alignment(t) for t in tensors),
    )


def _base_alignment(tensor: torch.Tensor) -> int:
    """By the offset into the storage. An empty tensor's address is 0, wherever its storage lies."""
    aligned = tensor.numel() == 0 or tensor.storage_offset() * tensor.element_size() % _ALIGNMENT == 0
    return _ALIGNMENT if aligned else 1


def _elements_are_distinct(tensor: torch.Tensor) -> bool:
    """Whether sorting the dimensions by stride shows that no two indices share an address."""
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    if not dims:
        return True
    if dims[0][0] <= 0:
        return False
    return all(outer[0] >= inner[0] * inner[1] for inner, outer in pairwise(dims))
