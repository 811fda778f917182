"""silu_and_mul beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import silu_and_mul

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


class Test_SILU_AND_MUL(common.PyTestCase):
    @staticmethod
    def reference(input):
        """In float32, rounded once."""
        gate, up = input.float().chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up).to(input.dtype)

    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((1024,), torch.float16), ((33, 100), torch.float32), ((2, 3, 514), torch.bfloat16)],
    )
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, shape, dtype, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        device = "cuda" if backend == "cutile" else "cpu"
        kwargs = {"input": torch.randn(shape, dtype=dtype, device=device, requires_grad=True)}
        self.assertCorrectness(silu_and_mul, self.reference, kwargs, gradient=torch.randn_like)
        self.assertDeterministic(silu_and_mul, kwargs, gradient=torch.ones_like)

    def test_an_odd_last_dimension_is_refused(self):
        with pytest.raises(ValueError, match="silu_and_mul: the last dimension of input must be even, got 3"):
            silu_and_mul(torch.ones(2, 3))
