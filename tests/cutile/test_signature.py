"""The signature worked out from any tensor is what `ct.launch` would compile for."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from tilegym_cutile.signature import signature
from tilegym_cutile.tiles import Rows  # noqa: TC001 - kernels' annotations are read at run time


@ct.kernel
def one(x) -> None:
    pass


@ct.kernel
def indexed(x: Rows) -> None:
    pass


@ct.kernel
def scalars(flag, count, wide: ct.ScalarInt64[int], factor, SIZE: ct.Constant[int], RAGGED: ct.Constant[bool]) -> None:
    pass


@ct.kernel
def several(arrays: tuple[Rows, ...], INNER: ct.Constant[tuple[int, int]]) -> None:
    pass


def array(tensor, kernel=one):
    [constraint] = signature(kernel, (tensor,)).parameters
    return constraint


def test_contiguous_rows_of_16_bytes_are_known_to_be_aligned():
    constraint = array(torch.empty(32, 64, dtype=torch.bfloat16))
    assert constraint.stride_constant == (None, 1)
    assert constraint.stride_divisible_by == (8, 1)
    assert constraint.shape_divisible_by == (16, 16)
    assert constraint.base_addr_divisible_by == 16
    assert not constraint.may_alias_internally


def test_odd_rows_and_offsets_are_not():
    constraint = array(torch.empty(33 * 257 + 1, dtype=torch.bfloat16)[1:].view(33, 257))
    assert constraint.stride_divisible_by == (1, 1)
    assert constraint.shape_divisible_by == (1, 1)
    assert constraint.base_addr_divisible_by == 1


def test_dimensions_of_size_one_are_constants():
    assert array(torch.empty(1, 64)).shape_constant == (1, None)


@pytest.mark.parametrize(
    ("strides", "aliases"), [((8, 1), False), ((4, 1), True), ((0, 1), True), ((1, 4), False), ((1, 3), True)]
)
def test_overlapping_elements_are_told(strides, aliases):
    assert array(torch.empty(64).as_strided((4, 8), strides)).may_alias_internally is aliases


def test_arrays_of_more_than_five_dimensions_get_no_assumptions():
    constraint = array(torch.empty(2, 2, 2, 2, 2, 16))
    assert constraint.stride_constant == (None,) * 6
    assert constraint.shape_divisible_by == (1,) * 6


def test_index_width_is_the_annotations():
    assert array(torch.empty(4)).index_dtype == ct.int32
    assert array(torch.empty(4), indexed).index_dtype == ct.int64


def test_scalars_and_constants():
    parameters = signature(scalars, (True, 3, 4, 0.5, 16, False)).parameters
    assert [p.dtype for p in parameters[:4]] == [ct.bool_, ct.int32, ct.int64, ct.float32]
    assert [p.value for p in parameters[4:]] == [16, False]


def test_tuples_may_be_empty():
    empty, inner = signature(several, ((), (1, 2))).parameters
    assert empty.items == ()
    assert [item.value for item in inner.items] == [1, 2]
    [item] = signature(several, ((torch.empty(2),), (1, 2))).parameters[0].items
    assert item.index_dtype == ct.int64


def test_symbols_differ_just_where_code_may_differ():
    wide, tall, odd, flat = (signature(one, (torch.empty(s),)).symbol for s in [(4, 64), (8, 64), (4, 63), (64,)])
    assert wide == tall
    assert len({wide, odd, flat}) == 3


def test_none_is_refused_as_the_launcher_refuses_it():
    with pytest.raises(TypeError, match="argument 'x' is a NoneType"):
        signature(one, (None,))
