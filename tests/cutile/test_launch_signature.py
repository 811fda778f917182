"""The Python signature follows the rules of the C code of cuda-tile (recorded here, since that needs a GPU driver)."""

from __future__ import annotations

from typing import Annotated

import cuda.tile as ct
import pytest
import torch
from cuda.tile.compilation import ArrayConstraint, ConstantConstraint, ListConstraint, ScalarConstraint, TupleConstraint
from torch._subclasses import FakeTensorMode

from tilegym_cutile.signature import signature


@ct.kernel
def one(x):
    pass


@ct.kernel
def wide(x: ct.IndexedWithInt64):
    pass


@ct.kernel
def scalars(a, b, c, d: ct.Constant[int], e: ct.ScalarInt64):
    pass


@ct.kernel
def pair(x: tuple[ct.Constant[int], float]):
    pass


def array(tensor: torch.Tensor) -> ArrayConstraint:
    (constraint,) = signature(one, (tensor,)).parameters
    assert isinstance(constraint, ArrayConstraint)
    return constraint


def test_a_contiguous_matrix() -> None:
    assert array(torch.zeros(32, 48)) == ArrayConstraint(
        ct.float32,
        2,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(None, 1),
        shape_constant=(None, None),
        stride_divisible_by=(4, 1),
        shape_divisible_by=(16, 16),
        base_addr_divisible_by=16,
    )


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.zeros(32, 48).T, {"stride_constant": (1, None), "stride_divisible_by": (1, 4)}),
        (torch.zeros(32, 47), {"shape_divisible_by": (16, 1), "stride_divisible_by": (1, 1)}),
        (torch.zeros(32, 48)[:, 1:], {"base_addr_divisible_by": 1, "shape_divisible_by": (16, 1)}),
        (torch.zeros(32, 48)[:, 4:], {"base_addr_divisible_by": 16, "stride_divisible_by": (4, 1)}),
        (torch.zeros(32, 48)[:0, 1:], {"base_addr_divisible_by": 16, "shape_divisible_by": (16, 1)}),
        (torch.zeros(1, 48), {"shape_constant": (1, None), "shape_divisible_by": (1, 16)}),
        (torch.zeros(48).expand(32, 48), {"may_alias_internally": True, "stride_constant": (None, 1)}),
        (torch.zeros(16, 16, dtype=torch.float16), {"stride_divisible_by": (8, 1)}),
        (torch.zeros(16, 16, dtype=torch.int8), {"stride_divisible_by": (16, 1)}),
        (torch.zeros(()), {"ndim": 0, "may_alias_internally": False, "shape_constant": ()}),
        (torch.zeros(2, 2, 2, 2, 2, 16), {"ndim": 6, "stride_constant": (None,) * 6, "shape_divisible_by": (1,) * 6}),
    ],
)
def test_assumptions(tensor: torch.Tensor, expected: dict[str, object]) -> None:
    constraint = array(tensor)
    assert {name: getattr(constraint, name) for name in expected} == expected


def test_meta_and_fake_tensors_have_the_signature_of_real_ones() -> None:
    real = torch.zeros(32, 48)[:, 4:40]
    with FakeTensorMode():
        fake = torch.zeros(32, 48)[:, 4:40]
    assert array(real.to("meta")[:, :36].as_strided(real.shape, real.stride(), 4)) == array(real)
    assert array(fake) == array(real)


def test_static_dimensions_come_from_the_annotation() -> None:
    @ct.kernel
    def static(x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(-1,), static_stride_dims=(0,))]):
        pass

    (constraint,) = signature(static, (torch.zeros(32, 48),)).parameters
    assert constraint.shape_constant == (None, 48)
    assert constraint.stride_constant == (48, None)


def test_wide_indices_come_from_the_annotation() -> None:
    (constraint,) = signature(wide, (torch.zeros(4),)).parameters
    assert constraint.index_dtype == ct.int64


def test_numbers() -> None:
    assert signature(scalars, (1, 2.5, True, 4, 5)).parameters == (
        ScalarConstraint(ct.int32),
        ScalarConstraint(ct.float32),
        ScalarConstraint(ct.bool_),
        ConstantConstraint(4),
        ScalarConstraint(ct.int64),
    )


def test_tuples_follow_their_annotation() -> None:
    assert signature(pair, ((3, 0.5),)).parameters == (
        TupleConstraint([ConstantConstraint(3), ScalarConstraint(ct.float32)]),
    )
    with pytest.raises(TypeError, match="argument 'x' is annotated as a tuple of 2 items, got 3"):
        signature(pair, ((3, 0.5, 1),))
    with pytest.raises(TypeError, match="argument 'x' is annotated as a tuple, got int"):
        signature(pair, (3,))


def test_the_items_of_a_list_share_what_holds_for_all() -> None:
    (constraint,) = signature(one, ([torch.zeros(32, 48), torch.zeros(20, 48)],)).parameters
    assert isinstance(constraint, ListConstraint)
    assert constraint.elements_may_alias
    assert constraint.element.shape_divisible_by == (1, 16)
    with pytest.raises(TypeError, match="must have one dtype and one rank"):
        signature(one, ([torch.zeros(3), torch.zeros(3, 3)],))
    with pytest.raises(TypeError, match="argument 'x' is a list; expected a non-empty list of tensors"):
        signature(one, ([],))


def test_the_symbol_tells_signatures_apart() -> None:
    symbols = {signature(one, (t,)).symbol for t in (torch.zeros(16), torch.zeros(17), torch.zeros(16).double())}
    assert len(symbols) == 3
    assert all("one" in symbol for symbol in symbols)
