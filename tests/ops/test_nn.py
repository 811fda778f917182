"""Modules of `tilegym.nn` in the place of torch's: same state dict, outputs and gradients, on each backend."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import tilegym

SHAPE = (3, 4, 40)
PAIRS = [
    pytest.param(tilegym.nn.RMSNorm, nn.RMSNorm, (40,), {}, id="RMSNorm"),
    pytest.param(tilegym.nn.RMSNorm, nn.RMSNorm, ([4, 40],), {"eps": 0.1}, id="RMSNorm-two-dims"),
    pytest.param(tilegym.nn.RMSNorm, nn.RMSNorm, (40,), {"elementwise_affine": False}, id="RMSNorm-no-weight"),
    pytest.param(tilegym.nn.LayerNorm, nn.LayerNorm, (40,), {}, id="LayerNorm"),
    pytest.param(tilegym.nn.LayerNorm, nn.LayerNorm, ((4, 40),), {"eps": 0.1}, id="LayerNorm-two-dims"),
    pytest.param(tilegym.nn.LayerNorm, nn.LayerNorm, (40,), {"bias": False}, id="LayerNorm-no-bias"),
    pytest.param(tilegym.nn.LayerNorm, nn.LayerNorm, (40,), {"elementwise_affine": False}, id="LayerNorm-no-weight"),
    pytest.param(tilegym.nn.GELU, nn.GELU, (), {}, id="GELU"),
    pytest.param(tilegym.nn.GELU, nn.GELU, ("tanh",), {}, id="GELU-tanh"),
    pytest.param(tilegym.nn.ReLU, nn.ReLU, (), {}, id="ReLU"),
    pytest.param(tilegym.nn.Softmax, nn.Softmax, (-1,), {}, id="Softmax"),
    pytest.param(tilegym.nn.Softmax, nn.Softmax, (1,), {}, id="Softmax-middle"),
]
pairs = pytest.mark.parametrize(("ours", "theirs", "args", "options"), PAIRS)
backends = pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def randomised(module):
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=1 + seed))
    return module


def results(module, x):
    """The output and the gradients of input and parameters."""
    leaf = x.clone().requires_grad_()
    y = module(leaf)
    return y, *torch.autograd.grad(y, [leaf, *module.parameters()], normal(*y.shape, seed=9).to(y.dtype))


@pairs
@backends
def test_torch_s_state_dict_gives_torch_s_outputs_and_gradients(ours, theirs, args, options, backend):
    expected, module = randomised(theirs(*args, **options)), ours(*args, **options)
    assert isinstance(module, theirs)
    module.load_state_dict(expected.state_dict())
    assert repr(module) == repr(expected)
    with tilegym.use_backend(backend), tilegym.trace() as calls:
        found = results(module, normal(*SHAPE))
    assert {call.backend for call in calls} == {backend}
    torch.testing.assert_close(found, results(expected, normal(*SHAPE)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rms_norm_without_eps_is_torch_s_where_eps_matters(dtype):
    x = normal(*SHAPE).mul(3e-4).to(dtype)
    torch.testing.assert_close(tilegym.nn.RMSNorm(40, dtype=dtype)(x), nn.RMSNorm(40, dtype=dtype)(x))


@pairs
def test_copies_compute_the_same(ours, theirs, args, options):
    module, x = randomised(ours(*args, **options)), normal(*SHAPE)
    again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own
    for one in (copy.deepcopy(module), again):
        assert type(one) is ours
        assert torch.equal(one(x), module(x))


@pairs
def test_dtypes_follow_the_module(ours, theirs, args, options):
    module = randomised(ours(*args, **options)).to(torch.bfloat16)
    expected = theirs(*args, **options).to(torch.bfloat16)
    expected.load_state_dict(module.state_dict())
    x = normal(*SHAPE).bfloat16()
    assert module(x).dtype == torch.bfloat16
    torch.testing.assert_close(module(x), expected(x))


@pairs
def test_compiles_without_a_graph_break(ours, theirs, args, options):
    module = randomised(ours(*args, **options))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(results(compiled, normal(*SHAPE)), results(module, normal(*SHAPE)))


@backends
def test_silu_and_mul(backend):
    def expected(x):
        gate, up = x.chunk(2, -1)
        return nn.functional.silu(gate) * up

    leaf = normal(*SHAPE).requires_grad_()
    with tilegym.use_backend(backend):
        y = tilegym.nn.SiluAndMul()(leaf)
    torch.testing.assert_close(y, expected(leaf))
    found, wanted = (torch.autograd.grad(one.square().sum(), leaf)[0] for one in (y, expected(leaf)))
    torch.testing.assert_close(found, wanted)


@backends
def test_geglu(backend):
    def expected(x):
        a, b = x.chunk(2, 1)
        return a * nn.functional.gelu(b, approximate="tanh")

    leaf = normal(*SHAPE).requires_grad_()
    with tilegym.use_backend(backend):
        y = tilegym.nn.GEGLU(1, "tanh")(leaf)
    torch.testing.assert_close(y, expected(leaf))
    found, wanted = (torch.autograd.grad(one.square().sum(), leaf)[0] for one in (y, expected(leaf)))
    torch.testing.assert_close(found, wanted)


def test_relu_in_place():
    x = normal(*SHAPE)
    expected = torch.relu(x)
    assert tilegym.nn.ReLU(inplace=True)(x) is x
    assert torch.equal(x, expected)


@backends
def test_dropout_draws_a_seed_per_call_in_training(backend):
    module, x = tilegym.nn.Dropout(0.25), torch.ones(100, 40)
    with tilegym.use_backend(backend):
        torch.manual_seed(5)
        first, second = module(x), module(x)
        torch.manual_seed(5)
        assert torch.equal(module(x), first)
        assert torch.equal(module.eval()(x), x)
    assert not torch.equal(first, second)
    assert first.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert 0.7 < (first > 0).double().mean() < 0.8


@backends
def test_dropout_draws_a_seed_per_call_of_compiled_and_exported_code_too(backend):
    module, x = tilegym.nn.Dropout(0.5), torch.ones(10, 40)
    with tilegym.use_backend(backend):
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        program = torch.export.export(module, (x,), strict=False).module()
        for one in (compiled, program):
            torch.manual_seed(5)
            first, second = one(x), one(x)
            torch.manual_seed(5)
            assert torch.equal(module(x), first)
            assert torch.equal(module(x), second)
    assert not torch.equal(first, second)


def test_dropout_s_seeds_come_from_the_cpu_whatever_the_default_device_is():
    x = torch.ones(10, 40)
    torch.manual_seed(5)
    expected = tilegym.nn.Dropout(0.5)(x)
    torch.manual_seed(5)
    with torch.device("meta"):
        assert torch.equal(tilegym.nn.Dropout(0.5)(x), expected)


def test_dropout_is_the_same_when_a_checkpoint_computes_it_again():
    module, x = tilegym.nn.Dropout(0.5), torch.ones(50, 40, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: module(x).square(), x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, 2 * y)


@backends
def test_swiglu(backend):
    module = tilegym.nn.SwiGLU(40, 24, bias=True)
    with tilegym.use_backend(backend):
        y = module(normal(*SHAPE))
    gate, up = module.gate_proj(normal(*SHAPE)), module.up_proj(normal(*SHAPE))
    torch.testing.assert_close(y, module.down_proj(nn.functional.silu(gate) * up))


@backends
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_rotary_embedding_makes_scores_depend_on_distances_alone(factor, backend):
    module, x = tilegym.nn.RotaryEmbedding(16, partial_rotary_factor=factor), normal(16).expand(1, 1, 6, 16)
    assert module.state_dict() == {}
    with tilegym.use_backend(backend):
        for q, k in (module(x, x), module(x, x, torch.arange(50, 56)[None])):
            scores = (q @ k.transpose(-1, -2))[0, 0]
            for diagonal in range(-5, 6):
                along = scores.diagonal(diagonal)
                torch.testing.assert_close(along, along[:1].expand_as(along), atol=1e-4, rtol=1e-4)
            assert scores.diagonal(3)[0] != scores.diagonal(0)[0]
    first, _ = module(x, x)
    assert torch.equal(first[:, :, 0], x[:, :, 0])


def test_no_cast_or_move_of_a_model_changes_the_angles_of_its_rotary_embedding():
    positions = torch.tensor([4000, 8191])
    frequencies = [10000 ** (-2 * j / 8) for j in range(4)]
    expected = torch.tensor(
        [[position * one for one in frequencies * 2] for position in (4000, 8191)], dtype=torch.float64
    )
    with torch.device("meta"):
        made_on_meta = tilegym.nn.RotaryEmbedding(8).to_empty(device="cpu")
    for module in (tilegym.nn.RotaryEmbedding(8), tilegym.nn.RotaryEmbedding(8).bfloat16(), made_on_meta):
        cos, sin = module.tables(positions)
        torch.testing.assert_close(cos, expected.cos().float(), atol=1e-3, rtol=0)
        torch.testing.assert_close(sin, expected.sin().float(), atol=1e-3, rtol=0)
    assert repr(module) == "RotaryEmbedding(8, base=10000.0, partial_rotary_factor=1.0)"


def test_modules_can_be_made_on_the_meta_device():
    module = tilegym.nn.LayerNorm(40, device="meta", dtype=torch.float16)
    assert (module.weight.device.type, module.bias.dtype) == ("meta", torch.float16)
    assert module(torch.empty(3, 40, device="meta", dtype=torch.float16)).shape == (3, 40)


def test_importing_tilegym_still_imports_no_torch():
    code = "import sys, tilegym; assert 'nn' in dir(tilegym); assert 'torch' not in sys.modules; tilegym.nn.RMSNorm"
    subprocess.run([sys.executable, "-c", code], check=True)
