"""What `get_swiglu` and `get_swiglu_module` return, bound to a backend or not."""

from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch

import tilegym
from tilegym.errors import ArgumentValueError
from tilegym.ops import get_swiglu, get_swiglu_module

X = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(0))
CONFIG = SimpleNamespace(hidden_size=16, intermediate_size=40, hidden_act="silu")


def test_get_swiglu_is_silu_of_a_times_b():
    a, b = (X.clone().requires_grad_() for _ in "ab")
    for backend in (None, "auto", "torch", "cutile-cpu"):
        with tilegym.use_backend("cutile-cpu"), tilegym.trace() as calls:
            result = get_swiglu(backend=backend)(a, b)
        expected = torch.nn.functional.silu(a) * b
        torch.testing.assert_close(result, expected)
        found, wanted = (torch.autograd.grad(one.square().sum(), (a, b)) for one in (result, expected))
        torch.testing.assert_close(found, wanted)
        assert [call.backend for call in calls] == [backend if backend in ("torch", "cutile-cpu") else "cutile-cpu"]


@pytest.mark.parametrize("backend", ["torch", "cutile-cpu"])
def test_the_module_computes_as_llama_does(backend):
    module, x = get_swiglu_module(backend=backend)(CONFIG), X.clone().requires_grad_()
    assert sorted(module.state_dict()) == ["down_proj.weight", "gate_proj.weight", "up_proj.weight"]
    expected = module.down_proj(torch.nn.functional.silu(module.gate_proj(x)) * module.up_proj(x))
    parameters = [x, *module.parameters()]
    torch.testing.assert_close(module(x), expected)
    found, wanted = (torch.autograd.grad(one.square().sum(), parameters) for one in (module(x), expected))
    torch.testing.assert_close(found, wanted)


def test_the_backend_binds_and_copies_keep_it():
    bound = get_swiglu_module(backend="torch")(CONFIG)
    with tilegym.use_backend("cutile-cpu"), tilegym.trace() as calls:
        for module in (get_swiglu_module()(CONFIG), bound, copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):  # noqa: S301 - our own
            module(X)
    assert [call.backend for call in calls] == ["cutile-cpu", "torch", "torch", "torch"]


def test_biases_come_from_the_configuration():
    module = get_swiglu_module()(SimpleNamespace(**vars(CONFIG), mlp_bias=True))
    assert module.gate_proj.bias.shape == (40,)


def test_another_activation_is_refused():
    with pytest.raises(ArgumentValueError, match="hidden_act must be 'silu' or 'swish', got 'gelu'"):
        get_swiglu_module()(SimpleNamespace(**vars(CONFIG) | {"hidden_act": "gelu"}))
