"""The signature `ct.launch` would compile a kernel for, worked out from CPU or meta tensors.

`ct.launch` derives it in C from CUDA tensors only. Working it out here lets a launch be recorded, compiled or
interpreted on a machine with no GPU. The rules are cuda-tile 1.7's own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import cuda.tile as ct
import torch
from cuda.tile._annotated_function import HomogeneousTupleNode, LeafAnnotationNode
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

    from torch import Tensor

_VECTOR_BITS = 128  # the alignment, in bits, that the compiler is told of
_SHAPE_DIVISOR = 16
_MAX_SPECIALISED_RANK = 5  # arrays of a higher rank get no assumptions at all


def signature_of(kernel: ct.kernel, args: Sequence[Any]) -> KernelSignature:
    """The signature for which `kernel` would be compiled when launched with `args`."""
    annotated = kernel._annotated_function  # noqa: SLF001 - cuda-tile has no public way to a kernel's annotations
    nodes = annotated.parameter_annotations
    parameters = [_constraint(value, node) for value, node in zip(args, nodes, strict=True)]
    convention = CallingConvention.cutile_python_v2()
    return KernelSignature(parameters, convention).with_mangled_symbol(annotated.pyfunc.__name__)


def _constraint(value: Any, node: Any) -> Any:
    if isinstance(value, tuple):
        return TupleConstraint([_constraint(v, n) for v, n in zip(value, _item_nodes(node, len(value)), strict=True)])
    if isinstance(value, torch.Tensor):
        return _array([value], node.array)
    if isinstance(value, list):
        element = _array(value, node.list and node.list.element)
        return ListConstraint(element, alias_groups=(), elements_may_alias=True)
    if not isinstance(value, (bool, int, float)):
        msg = f"a kernel argument must be a tensor, bool, int or float, or a tuple or list of them: got {value!r}"
        raise TypeError(msg)
    return ConstantConstraint(value) if node.constant else ScalarConstraint(_scalar_dtype(value, node))


def _scalar_dtype(value: float, node: Any) -> ct.DType:
    if isinstance(value, bool):
        return ct.bool_
    if isinstance(value, float):
        return ct.float32
    return ct.int32 if node.scalar is None else node.scalar.dtype


def _item_nodes(node: Any, length: int) -> list[Any]:
    if isinstance(node, LeafAnnotationNode):
        return [node] * length
    if isinstance(node, HomogeneousTupleNode):
        return [node.each] * length
    return list(node.items)


def _array(tensors: Sequence[Tensor], annotation: ct.ArrayAnnotation | None) -> ArrayConstraint:
    """What the compiler may assume of every one of `tensors` (several: the elements of a list)."""
    annotation = annotation or ct.ArrayAnnotation()
    first = tensors[0]
    rank, dtype = first.ndim, to_dtype(first.dtype)
    static_shape = {d % rank for d in annotation.static_shape_dims}
    static_stride = {d % rank for d in annotation.static_stride_dims}
    shape: list[int | None] = [None] * rank
    stride: list[int | None] = [None] * rank
    for d in range(rank):
        if d in static_shape or (not static_shape and _everywhere(tensors, d, lambda t, d: t.shape[d] == 1)):
            shape[d] = first.shape[d]
        if d in static_stride or (not static_stride and _everywhere(tensors, d, lambda t, d: t.stride(d) == 1)):
            stride[d] = first.stride(d)
    element_divisor = _VECTOR_BITS // dtype.bitwidth if _VECTOR_BITS % dtype.bitwidth == 0 else 1

    def aligned_stride(t: Tensor, d: int) -> bool:
        return bool(t.stride(d) * dtype.bitwidth % _VECTOR_BITS == 0)

    def aligned_shape(t: Tensor, d: int) -> bool:
        return t.shape[d] % _SHAPE_DIVISOR == 0

    return ArrayConstraint(
        dtype,
        rank,
        index_dtype=annotation.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=not all(_is_injective(t) for t in tensors),
        stride_constant=stride,
        shape_constant=shape,
        stride_divisible_by=[
            element_divisor if stride[d] is None and _everywhere(tensors, d, aligned_stride) else 1 for d in range(rank)
        ],
        shape_divisible_by=[
            _SHAPE_DIVISOR if shape[d] is None and _everywhere(tensors, d, aligned_shape) else 1 for d in range(rank)
        ],
        base_addr_divisible_by=min(_base_alignment(t) for t in tensors),
    )


def _everywhere(tensors: Sequence[Tensor], d: int, holds: Callable[[Tensor, int], bool]) -> bool:
    return tensors[0].ndim <= _MAX_SPECIALISED_RANK and all(holds(t, d) for t in tensors)


def _is_injective(tensor: Tensor) -> bool:
    """Whether strides and shape show that no two indices share an address."""
    dims = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    positive = all(stride > 0 for stride, _ in dims)
    return positive and all(outer >= inner * size for (inner, size), (outer, _) in pairwise(dims))


def _base_alignment(tensor: Tensor) -> int:
    """16 where the offset allows it: every allocator aligns a storage's start to 16 bytes or more."""
    return 16 if tensor.storage_offset() * tensor.element_size() % 16 == 0 else 1
