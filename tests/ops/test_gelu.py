"""gelu beside PyTorch; the conformance suites run the contract's samples through every backend."""

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import gelu
from tilegym.testing import assert_accurate
from tilegym.testing.gradients import measure_gradients

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


class Test_GELU(common.PyTestCase):
    @staticmethod
    def reference(input, approximate):
        return torch.nn.functional.gelu(input.float(), approximate=approximate).to(input.dtype)

    def _device(self, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        return "cuda" if backend == "cutile" else "cpu"

    @pytest.mark.parametrize("approximate", ["none", "tanh"])
    @pytest.mark.parametrize(
        ("shape", "dtype"),
        [((1024,), torch.float16), ((33, 100), torch.float32), ((2, 3, 257), torch.bfloat16)],
    )
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, shape, dtype, approximate, backend):
        device = self._device(backend)
        kwargs = {
            "input": torch.randn(shape, dtype=dtype, device=device, requires_grad=True),
            "approximate": approximate,
        }
        self.assertCorrectness(gelu, self.reference, kwargs, gradient=torch.randn_like)
        self.assertDeterministic(gelu, kwargs, gradient=torch.ones_like)

    @pytest.mark.parametrize("approximate", ["none", "tanh"])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("backend", _backends)
    def test_every_16_bit_number(self, dtype, approximate, backend):
        """Short dtypes have their own polynomials; the gradient crosses zero where two terms cancel."""
        device = self._device(backend)
        numbers = torch.arange(-(2**15), 2**15, device=device).to(torch.int16).view(dtype)
        numbers = numbers[numbers.isfinite()].requires_grad_()
        arguments = {"input": numbers, "approximate": approximate}
        result = gelu(**arguments, backend=backend)
        assert_accurate(gelu.contract, arguments, result)
        ones = torch.ones_like(result)
        (gradient,) = torch.autograd.grad(result, numbers, ones)
        contract = gelu.contract
        found = measure_gradients(contract, contract.gradient, arguments, (ones,), {"input": gradient})["input"]
        assert found.ok, str(found)

    @pytest.mark.parametrize("approximate", ["none", "tanh"])
    @pytest.mark.parametrize("backend", _backends)
    def test_float32_over_all_magnitudes(self, approximate, backend):
        device = self._device(backend)
        near = torch.linspace(-10, 10, 20001, device=device)
        far = torch.logspace(-38, 38, 1001, device=device)
        arguments = {"input": torch.cat([near, far, -far]), "approximate": approximate}
        assert_accurate(gelu.contract, arguments, gelu(**arguments, backend=backend))

    @pytest.mark.parametrize("backend", _backends)
    def test_dense_layouts_are_kept(self, backend):
        device = self._device(backend)
        images = torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last)
        assert gelu(images, backend=backend).is_contiguous(memory_format=torch.channels_last)

    def test_compilers_are_told_of_the_layouts_that_are_kept(self):
        images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        gelu(images, backend="cutile-cpu")  # defines the torch ops
        forward, backward = torch.ops.tilegym.gelu_fwd.default, torch.ops.tilegym.gelu_bwd.default
        for given in ((images, "none"), (images.detach(), "tanh")):
            torch.library.opcheck(forward, given, {"backend": "cutile-cpu"})
        given = (images.detach(), images.detach(), "none", [True])
        torch.library.opcheck(backward, given, {"backend": "cutile-cpu"}, test_utils="test_faketensor")

    def test_an_unknown_form_is_refused(self):
        with pytest.raises(ValueError, match="gelu: approximate must be 'none' or 'tanh', got 'erf'"):
            gelu(torch.ones(2), approximate="erf")
