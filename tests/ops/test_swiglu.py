"""swiglu beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import silu_and_mul, swiglu

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


class Test_SWIGLU(common.PyTestCase):
    @staticmethod
    def reference(a, b):
        return (torch.nn.functional.silu(a.float()) * b.float()).to(a.dtype)

    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((1024,), torch.float16), ((33, 100), torch.float32), ((2, 3, 257), torch.bfloat16)],
    )
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, shape, dtype, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        device = "cuda" if backend == "cutile" else "cpu"
        kwargs = {name: torch.randn(shape, dtype=dtype, device=device, requires_grad=True) for name in "ab"}
        self.assertCorrectness(swiglu, self.reference, kwargs, gradient=torch.randn_like)
        self.assertDeterministic(swiglu, kwargs, gradient=torch.ones_like)

    def test_halves_of_one_tensor_give_what_silu_and_mul_gives(self):
        x = torch.randn(5, 66)
        assert torch.equal(swiglu(*x.chunk(2, dim=-1), backend="torch"), silu_and_mul(x, backend="torch"))

    def test_another_dtype_is_refused(self):
        with pytest.raises(TypeError, match="swiglu: b must be one of float32, got float16"):
            swiglu(torch.ones(2), torch.ones(2, dtype=torch.float16))
