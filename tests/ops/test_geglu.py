"""geglu beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

import tilegym
from tilegym.backend import set_backend
from tilegym.ops import geglu

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


class Test_GEGLU(common.PyTestCase):
    @staticmethod
    def reference(input, dim, approximate):
        a, b = input.float().chunk(2, dim=dim)
        return (a * torch.nn.functional.gelu(b, approximate=approximate)).to(input.dtype)

    @pytest.mark.parametrize(
        ("shape", "dim", "approximate", "dtype"),
        [
            ((1024,), 0, "none", torch.float16),
            ((33, 100), -1, "none", torch.float32),
            ((2, 6, 257), -2, "tanh", torch.bfloat16),
        ],
    )
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, shape, dim, approximate, dtype, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        device = "cuda" if backend == "cutile" else "cpu"
        kwargs = {
            "input": torch.randn(shape, dtype=dtype, device=device, requires_grad=True),
            "dim": dim,
            "approximate": approximate,
        }
        self.assertCorrectness(geglu, self.reference, kwargs, gradient=torch.randn_like)
        self.assertDeterministic(geglu, kwargs, gradient=torch.ones_like)

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            ({"dim": 0}, ValueError, "geglu: dimension 0 of input must be of even size, got 3"),
            ({"dim": 2}, ValueError, "geglu: dim must be from -2 to 1 for input of 2 dimensions, got 2"),
            ({"dim": 1.0}, TypeError, "geglu: dim must be an int, got float"),
            ({"approximate": "erf"}, ValueError, "geglu: approximate must be 'none' or 'tanh', got 'erf'"),
        ],
    )
    def test_refuses(self, given, error, message):
        with pytest.raises(error, match=message):
            geglu(torch.ones(3, 4), **given)


def test_activations_have_a_second_name():
    assert "activation" in dir(tilegym.ops)
    assert tilegym.ops.activation.geglu is geglu
    assert tilegym.ops.activation.gelu is tilegym.ops.gelu
    assert tilegym.ops.activation.relu is tilegym.ops.relu
