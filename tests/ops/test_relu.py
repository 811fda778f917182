"""relu beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import relu

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


class Test_RELU(common.PyTestCase):
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("backend", _backends)
    def test_special_numbers_and_their_gradients(self, dtype, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        numbers = [-torch.inf, -1.5, -0.0, 0.0, 1e-7, 1.5, torch.inf, torch.nan]
        x = torch.tensor(numbers, dtype=dtype, device="cuda" if backend == "cutile" else "cpu", requires_grad=True)
        result = relu(x, backend=backend)
        torch.testing.assert_close(result, torch.relu(x), rtol=0, atol=0, equal_nan=True)
        (gradient,) = torch.autograd.grad(result, x, torch.full_like(x, torch.inf))
        (expected,) = torch.autograd.grad(torch.relu(x), x, torch.full_like(x, torch.inf))
        torch.testing.assert_close(gradient, expected, rtol=0, atol=0)
