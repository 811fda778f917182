"""Which way host code takes for operands whose rows are not aligned: a copy that is, or single elements."""

from __future__ import annotations

import itertools

import pytest
import torch

from tilegym.testing import load_implementation
from tilegym_cutile.gemm_plan import Form
from tilegym_cutile.products import multiply
from tilegym_cutile.runtime import recording
from tilegym_cutile.signature import name_of

MATMUL, BMM, GROUP_GEMM = (load_implementation(op, "cutile") for op in ("matmul", "bmm", "group_gemm"))
COPY, PRODUCT = "copy_tiles", "gemm_tiles"
ODD, EVEN = 1023, 1024


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def launches_of(function, **arguments):
    with recording(arch="sm_90") as launches:
        function(arguments)
    return [(name_of(one.kernel), one.args) for one in launches]


def names(launches):
    return [name for name, _ in launches]


def loaded_as_blocks(*operands):
    return [Form.of(one).is_blocked for one in operands]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize(("trans_a", "trans_b"), [*itertools.product((False, True), repeat=2)])
def test_a_large_product_copies_unaligned_operands_whichever_way_they_lie(trans_a, trans_b, dtype):
    a, b = meta(ODD, ODD, dtype=dtype), meta(ODD, ODD, dtype=dtype)
    launches = launches_of(MATMUL, a=a, b=b, trans_a=trans_a, trans_b=trans_b)
    assert names(launches) == [COPY, COPY, PRODUCT]
    x, y, *_ = launches[-1][1]
    assert loaded_as_blocks(x, y) == [True, True]
    assert (x.shape, x.stride(), x.dtype) == ((ODD, ODD), (EVEN, 1), dtype)


@pytest.mark.parametrize(
    ("a", "b", "copies"),
    [
        (meta(2048, ODD)[:, :-7], meta(1016, EVEN), 1),  # of two, the one that is not aligned
        (meta(2048, EVEN), meta(EVEN, 1016), 0),
        (meta(EVEN, 2 * EVEN)[:, ::2], meta(EVEN, EVEN), 1),  # no adjacent elements
        (meta(ODD, ODD).mT, meta(ODD, ODD).mT, 2),
        (meta(EVEN * EVEN + 1)[1:].view(EVEN, EVEN), meta(EVEN, EVEN), 1),  # begins at an odd address
        (meta(16, 4095), meta(4095, 14335), 0),  # few rows: the other operand is read once, not copied
        (meta(4095, 8191).mT, meta(4095, 9), 0),
        (meta(129, 129), meta(129, 129), 0),  # a copy's launch alone takes longer than the product
    ],
)
def test_what_is_copied_depends_on_how_much_the_copy_is_used(a, b, copies):
    assert names(launches_of(MATMUL, a=a, b=b))[: copies + 1] == [COPY] * copies + [PRODUCT]


def test_who_wants_no_tma_gets_no_copies():
    with recording(arch="sm_90") as launches:
        multiply(*[meta(ODD, ODD)] * 3, use_tma=False)
    assert len(launches) == 1


@pytest.mark.parametrize(
    "a",
    [
        meta(4, ODD, ODD),
        meta(ODD, 4, ODD).transpose(0, 1),
        meta(ODD, ODD, 4).permute(2, 0, 1),
        meta(ODD, ODD, 4).permute(2, 1, 0),
    ],
)
def test_a_batch_is_copied_wherever_its_matrices_lie(a):
    launches = launches_of(BMM, a=a, b=meta(4, ODD, EVEN))
    assert names(launches) == [COPY, PRODUCT]
    assert launches[-1][1][0].stride() == (ODD * EVEN, EVEN, 1)


def test_the_one_matrix_of_an_expanded_batch_is_copied_once():
    launches = launches_of(BMM, a=meta(1, ODD, ODD).expand(4, ODD, ODD), b=meta(4, ODD, EVEN))
    assert names(launches) == [COPY, PRODUCT]
    assert launches[0][1][1].shape == (ODD, ODD)


@pytest.mark.parametrize(("function", "batch"), [(MATMUL, ()), (BMM, (2,))])
def test_products_of_gradients_copy_their_own_operands(function, batch):
    """The gradient of the result is unaligned, as b is; a is not."""
    launches = launches_of(function.differentiate, a=meta(*batch, ODD, EVEN), b=meta(*batch, EVEN, ODD))
    forward, of_a, of_b = [COPY, PRODUCT], [COPY, COPY, PRODUCT], [COPY, PRODUCT]
    assert names(launches) == forward + of_a + of_b


def test_a_group_copies_its_unaligned_members_if_it_is_large_in_all():
    large, aligned = [meta(ODD, ODD) for _ in range(3)], [meta(EVEN, EVEN)[:ODD, :ODD]]
    launches = launches_of(GROUP_GEMM, group_A=large + aligned, group_B=[meta(ODD, EVEN)] * 4)
    assert names(launches) == [COPY] * 3 + ["group_gemm_tiles"]
    xs, ys, *_ = launches[-1][1]
    assert all(loaded_as_blocks(*xs, *ys))
    launches = launches_of(GROUP_GEMM, group_A=[meta(16, ODD)] * 4, group_B=[meta(ODD, ODD)] * 4)
    assert names(launches) == ["group_gemm_tiles"]


FAR_APART = torch.empty_strided((2, 1024), (2**31, 1), dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(
    "given", [{"a": FAR_APART}, {"b": FAR_APART.mT}, {"residual": FAR_APART}, {"a": FAR_APART, "residual": FAR_APART}]
)
def test_a_product_takes_strides_beyond_32_bits(given):
    launches = launches_of(MATMUL, **{"a": meta(2, EVEN), "b": meta(EVEN, EVEN)} | given)
    assert names(launches)[0] == "gemm_tiles_wide"


def test_a_group_takes_strides_beyond_32_bits():
    """One by one: the arrays of a list have 32 bits."""
    launches = launches_of(GROUP_GEMM, group_A=[FAR_APART, meta(2, EVEN)], group_B=[meta(EVEN, EVEN)] * 2)
    assert names(launches) == ["gemm_tiles_wide", "gemm_tiles"]
