"""matmul and bmm beside PyTorch; the conformance suites run the contract's samples through every backend."""

import math

import pytest
import torch

import tilegym
from tilegym.backend import set_backend
from tilegym.errors import NoImplementationError
from tilegym.ops import bmm, matmul
from tilegym.testing import assert_accurate, measure

from .. import common

BACKENDS = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]
everywhere = pytest.mark.parametrize("backend", BACKENDS)


def device_of(backend):
    return "cuda" if backend == "cutile" else "cpu"


class Test_MATMUL(common.PyTestCase):
    @staticmethod
    def reference(a, b, trans_b):
        """In float64, rounded once."""
        return (a.double() @ (b.mT if trans_b else b).double()).to(a.dtype)

    @pytest.mark.parametrize(
        ("m", "n", "k", "trans_b", "dtype"),
        [(64, 128, 32, False, torch.float16), (33, 70, 100, True, torch.float32), (1, 65, 257, False, torch.bfloat16)],
    )
    @everywhere
    def test_op(self, m, n, k, trans_b, dtype, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        device = device_of(backend)
        kwargs = {  # of whole numbers, whose sums are exact: so must the results be
            "a": torch.randint(-4, 5, (m, k), device=device).to(dtype).requires_grad_(),
            "b": torch.randint(-4, 5, (n, k) if trans_b else (k, n), device=device).to(dtype).requires_grad_(),
            "trans_b": trans_b,
        }
        self.assertCorrectness(matmul, self.reference, kwargs, gradient=torch.ones_like, rtol=0, atol=0)
        self.assertDeterministic(matmul, kwargs, gradient=torch.ones_like)


@everywhere
def test_sums_beyond_float16_are_infinite_and_those_that_come_back_are_not(backend):
    """Terms of 2^15: 4 of them are beyond 65504; with as many negative ones the sum is what is left."""
    a = torch.full((3, 16), 2.0**7, dtype=torch.float16, device=device_of(backend))
    b = torch.full((16, 2), 2.0**8, dtype=torch.float16, device=device_of(backend))
    assert matmul(a, b, backend=backend).tolist() == [[math.inf] * 2] * 3
    b[8:] *= -1
    b[15] = 0
    assert matmul(a, b, backend=backend).tolist() == [[2.0**15] * 2] * 3


@everywhere
def test_small_terms_survive_beside_large_ones_that_cancel(backend):
    """2^12 and -2^12 times 1, beside 2^-10: bfloat16 has 8 bits, and float32's sum all 23 that are needed."""
    a = torch.ones(1, 3, dtype=torch.bfloat16, device=device_of(backend))
    b = torch.tensor([[2.0**12], [2.0**-10], [-(2.0**12)]], dtype=torch.bfloat16, device=device_of(backend))
    assert matmul(a, b, backend=backend).item() == 2.0**-10


@everywhere
@pytest.mark.parametrize(("dtype", "largest"), [(torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)])
def test_float8_saturates(backend, dtype, largest):
    a = torch.full((2, 64), 64.0, device=device_of(backend)).to(dtype)
    b = torch.cat([a.float(), -a.float()]).mT.to(dtype)
    a[1] = torch.nan
    found = matmul(a, b, backend=backend)
    assert found.dtype == dtype
    if dtype == torch.float8_e4m3fn:  # 64 * 64 * 64 is 262144: beyond both
        assert found[0].float().tolist() == [largest] * 2 + [-largest] * 2
    assert found[1].isnan().all()
    assert matmul(a, b, out_dtype=torch.float32, backend=backend)[0].tolist() == [2.0**18] * 2 + [-(2.0**18)] * 2


@everywhere
def test_no_terms_leave_bias_and_residual(backend):
    a, b = (torch.empty(shape, device=device_of(backend)) for shape in ((2, 0), (0, 3)))
    bias, residual = torch.tensor([-1.0, 0.0, 2.0]), torch.ones(2, 3)
    given = {"bias": bias.to(a.device), "residual": residual.to(a.device)}
    assert matmul(a, b, backend=backend).tolist() == [[0.0] * 3] * 2
    assert matmul(a, b, activation="relu", **given, backend=backend).tolist() == [[1.0, 1.0, 3.0]] * 2


@everywhere
def test_what_follows_the_product_is_what_it_is_apart(backend):
    device = device_of(backend)
    a, b, bias, residual = (torch.randn(shape, device=device) for shape in ((9, 40), (40, 24), (24,), (9, 24)))
    fused = matmul(a, b, bias=bias, activation="silu", residual=residual, backend=backend)
    apart = torch.nn.functional.silu(matmul(a, b, backend=backend) + bias) + residual
    torch.testing.assert_close(fused, apart)


@everywhere
def test_gradients_are_laid_out_as_their_inputs(backend):
    device = device_of(backend)
    a, b = torch.randn(5, 3, device=device).t().requires_grad_(), torch.randn(4, 5, device=device).requires_grad_()
    matmul(a, b.t(), backend=backend).sum().backward()
    assert (a.grad.stride(), b.grad.stride()) == (a.stride(), b.stride())
    assert torch.equal(a.grad, b.detach().sum(0).expand(3, 5))


@pytest.mark.parametrize(("name", "shape", "expected"), [("bias", (4,), 3.0), ("residual", (3, 4), 1.0)])
@everywhere
def test_what_is_given_by_keyword_has_its_gradient_though_no_operand_needs_one(name, shape, expected, backend):
    device = device_of(backend)
    added = torch.zeros(shape, device=device, requires_grad=True)
    matmul(
        torch.ones(3, 8, device=device), torch.ones(8, 4, device=device), **{name: added}, backend=backend
    ).sum().backward()
    assert torch.equal(added.grad, torch.full_like(added, expected))


def test_scales_have_no_gradient():
    scale = torch.ones(1, requires_grad=True)
    with pytest.raises(NoImplementationError, match="scale_a requires a gradient"):
        matmul(torch.ones(3, 8), torch.ones(8, 4), scale_a=scale, backend="cutile-cpu")


@pytest.mark.parametrize("backend", ["cutile-cpu"])
def test_blocks_walk_over_tiles_or_have_one_each(backend):
    """16 tiles on the 4 SMs of the make-believe device, which all have to be written once."""
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    a, b = torch.randn(500, 24), torch.randn(24, 500)
    grids = []
    for persistent in (True, False):
        with record_launches() as launches:
            found = matmul(a, b, static_persistent=persistent, backend=backend)
        assert_accurate(matmul.contract, {"a": a, "b": b}, found)
        grids.append(launches[0].grid[0])
    assert grids[0] == 4 < grids[1]


def test_an_expanded_batch_is_loaded_as_the_one_matrix_it_is():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    a, b = torch.randn(1, 24, 16).expand(3, 24, 16), torch.randn(3, 16, 40)
    with record_launches() as launches:
        found = bmm(a, b, backend="cutile-cpu")
    assert_accurate(bmm.contract, {"a": a, "b": b}, found)
    assert [launch.kernel_name for launch in launches] == ["gemm_tiles"]


@pytest.fixture(params=["allow_tf32", "fp32_precision"])
def _tf32(request):
    """By either of PyTorch's settings; once the second is used, the first may not be read."""
    matmul_settings = torch.backends.cuda.matmul
    before = matmul_settings.fp32_precision
    setattr(matmul_settings, request.param, True if request.param == "allow_tf32" else "tf32")
    yield
    matmul_settings.allow_tf32 = False
    matmul_settings.fp32_precision = before


def test_tf32_is_not_multiplied_in_unasked():
    a = torch.ones(2, 2)
    assert matmul.contract.canonical(a, a)[-1] is False


@pytest.mark.usefixtures("_tf32")
def test_tf32_is_torchs_setting():
    a = torch.ones(2, 2)
    assert matmul.contract.canonical(a, a)[-1] is True
    assert matmul.contract.canonical(a.half(), a.half())[-1] is False


@pytest.mark.usefixtures("_tf32")
@pytest.mark.parametrize("backend", ["cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)])
def test_tf32_rounds_the_operands(backend):
    """To 11 bits: 1 + 2^-12 is 1."""
    a = torch.full((16, 64), 1 + 2.0**-12, device=device_of(backend))
    assert torch.equal(matmul(a, torch.ones_like(a).t(), backend=backend), torch.full((16, 16), 64.0, device=a.device))


@pytest.mark.parametrize("backend", ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)])
def test_gradients_pass_relu_where_it_was_given_nan(backend):
    """As they pass torch's own, and the op relu."""
    a = torch.tensor([[math.nan], [-1.0], [2.0]], device=device_of(backend), requires_grad=True)
    matmul(a, torch.ones_like(a[:1]), activation="relu", backend=backend).sum().backward()
    assert a.grad.tolist() == [[1.0], [0.0], [1.0]]


@pytest.mark.gpu
def test_more_elements_than_31_bits_count():
    """The last rows of a product with 2^31 and more elements, and of operands that have as many."""
    m = 2**20 + 3
    a = torch.randn(m, 2048, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(2048, 2056, device="cuda", dtype=torch.bfloat16)
    found = matmul(a, b, backend="cutile")
    assert found.numel() > 2**31 < a.numel()
    assert_accurate(matmul.contract, {"a": a[-5:], "b": b}, found[-5:])
    apart = torch.empty_strided((2, 64, 2048), (2**31, 2048, 1), device="cuda", dtype=torch.bfloat16).normal_()
    given = {"a": apart, "b": b[:, :64].expand(2, 2048, 64)}
    assert_accurate(bmm.contract, given, bmm(**given, backend="cutile"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"b": torch.ones(4, 5)}, ValueError, r"b must have shape \(3, 5\) to fit a of shape \(2, 3\), got \(4, 5\)"),
        ({"a": torch.ones(3)}, ValueError, r"a must have 2 dimensions, got shape \(3,\)"),
        ({"b": torch.ones(3, 5).half()}, TypeError, "b must be one of float32, got float16"),
        ({"trans_a": 1}, TypeError, "trans_a must be a bool or None, got int"),
        ({"activation": "tanh"}, ValueError, "activation must be None or one of 'relu', 'gelu', 'gelu_tanh', 'silu'"),
        ({"bias": torch.ones(2)}, ValueError, r"bias must have shape \(5,\), got \(2,\)"),
        ({"residual": torch.ones(2, 5).half()}, TypeError, "residual must be one of float32, got float16"),
        ({"out_dtype": torch.int8}, ValueError, "out_dtype must be one of float32, .*, got torch.int8"),
        ({"scale_a": 2.0}, TypeError, "scale_a must be a torch.Tensor, got float"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change, error, message):
    with pytest.raises(error, match=f"matmul: {message}"):
        matmul(**{"a": torch.ones(2, 3), "b": torch.ones(3, 5)} | change)


def test_a_batch_must_be_the_same():
    with pytest.raises(ValueError, match=r"bmm: b must have shape \(2, 4, 5\) to fit a of shape \(2, 3, 4\)"):
        tilegym.ops.bmm(torch.ones(2, 3, 4), torch.ones(1, 4, 5))


@pytest.mark.parametrize(("dtype", "unit"), [(torch.float8_e4m3fn, 2**-16), (torch.bfloat16, 2**-24)])
def test_sums_of_float8_may_be_as_short_as_those_of_tensor_cores_and_no_shorter(dtype, unit):
    a, b = (torch.randn(16, 64, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    exact, absolute = a.double() @ b.double().t(), a.double().abs() @ b.double().t().abs()
    arguments = {"a": a, "b": b, "trans_b": True, "out_dtype": torch.float32}
    for share in (0.5, 2.0):
        [found] = measure(matmul.contract, arguments, (exact + share * 2 * unit * 64**0.5 * absolute).float())
        assert found.element_ratio == pytest.approx(share, rel=0.2)
        assert found.ok == (share < 1)


@pytest.mark.parametrize(
    ("m", "n", "k", "trans_a", "trans_b", "copies"),
    [(521, 529, 165, False, False, 2), (529, 521, 165, True, True, 2), (520, 257, 136, True, False, 1)],
)
def test_unaligned_rows_of_a_large_product_are_copied_into_aligned_ones(m, n, k, trans_a, trans_b, copies):
    """Beyond the rows' ends, where the copy has nothing, zeros have to be multiplied."""
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    a, b = torch.randn((k, m) if trans_a else (m, k)), torch.randn((n, k) if trans_b else (k, n))
    with record_launches() as launches:
        found = matmul(a, b, trans_a=trans_a, trans_b=trans_b, backend="cutile-cpu")
    assert [launch.kernel_name for launch in launches] == ["copy_tiles"] * copies + ["gemm_tiles"]
    assert_accurate(matmul.contract, {"a": a, "b": b, "trans_a": trans_a, "trans_b": trans_b}, found)


def test_a_skinny_product_reads_unaligned_weights_as_they_are():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    a, b = torch.randn(3, 1025), torch.randn(1025, 257)
    with record_launches() as launches:
        found = matmul(a, b, backend="cutile-cpu")
    assert not {launch.kernel_name for launch in launches} & {"copy_tiles"}
    assert_accurate(matmul.contract, {"a": a, "b": b}, found)


def test_a_batch_with_unaligned_rows_is_copied_into_aligned_ones():
    from tilegym_cutile_cpu import record_launches  # which not every environment has

    a, b = torch.randn(264, 3, 129).transpose(0, 1), torch.randn(3, 129, 264)
    with record_launches() as launches:
        found = bmm(a, b, backend="cutile-cpu")
    assert [launch.kernel_name for launch in launches] == ["copy_tiles", "gemm_tiles"]
    assert_accurate(bmm.contract, {"a": a, "b": b}, found)
