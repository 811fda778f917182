"""What the contracts of TileGym's own ops refuse, on every backend alike."""

from __future__ import annotations

import pytest
import torch

import tilegym
from tilegym.errors import ArgumentTypeError, ArgumentValueError
from tilegym.ops import apply_rope_base, dropout, geglu, group_gemm, relu, rms_norm, silu_and_mul

X = torch.rand(4, 6)
everywhere = pytest.mark.parametrize("backend", [b for b in tilegym.get_available_backends() if b != "cutile"])


@everywhere
@pytest.mark.parametrize("out", [torch.empty(4, 1).expand(4, 3), torch.empty(1, 3).expand(4, 3)])
def test_silu_and_mul_does_not_write_to_an_expanded_out(backend, out):
    with pytest.raises(ArgumentValueError, match="out must not be expanded"):
        silu_and_mul(X, out=out, backend=backend)


def test_an_out_of_stride_0_and_size_1_is_none():
    out = torch.empty(1).expand(1, 3)[:, :1].expand(1, 1)
    assert silu_and_mul(X[:1, :2], out=out) is out


@everywhere
@pytest.mark.parametrize("offset", [None, "1", torch.tensor(1.0), [1.0]])
def test_rms_norm_wants_a_number_as_offset(backend, offset):
    with pytest.raises(ArgumentTypeError, match="offset must be a number"):
        rms_norm(X, None, None, 1e-6, offset=offset, backend=backend)


@everywhere
@pytest.mark.parametrize("shape", [6.0, [6.0], "6", torch.tensor(6), {6: 1}, [None]])
def test_rms_norm_wants_ints_as_normalized_shape(backend, shape):
    with pytest.raises(ArgumentTypeError, match="normalized_shape must be ints, an int or None"):
        rms_norm(X, shape, None, 1e-6, backend=backend)


INTS = {
    "seed": lambda value, backend: dropout(X, value, backend=backend),
    "dim": lambda value, backend: geglu(X, value, backend=backend),
    "unsqueeze_dim": lambda value, backend: apply_rope_base(
        X[None, None], X[None, None], X, X, unsqueeze_dim=value, backend=backend
    ),
}


@everywhere
@pytest.mark.parametrize("name", INTS)
@pytest.mark.parametrize("value", [True, 1.0, "1", None, torch.tensor(1)])
def test_an_int_is_an_int(backend, name, value):
    with pytest.raises(ArgumentTypeError, match=f"{name} must be an int, got {type(value).__name__}"):
        INTS[name](value, backend)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@everywhere
def test_nested_tensors_are_refused_by_name(backend):
    nested = torch.nested.nested_tensor([X, X])
    relu(torch.rand(2, 4, 6), backend=backend)  # what is remembered of it must not serve the nested one
    with pytest.raises(ArgumentTypeError, match="relu: x must be dense, got a nested tensor"):
        relu(nested, backend=backend)
    with pytest.raises(ArgumentTypeError, match="dropout: x must be dense, got a nested tensor"):
        dropout(nested, 1, inplace=True, backend=backend)  # PyTorch would abort
    with pytest.raises(ArgumentTypeError, match="group_gemm: group_A must be dense, got a nested tensor"):
        group_gemm([X, nested], [X, X], backend=backend)
