"""Modules of `get_rms_norm_module`: what Hugging Face's classes give, bound to a backend or not."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import tilegym
from tilegym.ops import get_rms_norm_module

X = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))


def filled(module):
    with torch.no_grad():
        module.weight.normal_(generator=torch.Generator().manual_seed(1))
    return module


@pytest.mark.parametrize(("model", "begins", "offset"), [("llama", 1.0, 0.0), ("gemma3", 0.0, 1.0)])
def test_computes_as_the_model_does(model, begins, offset):
    module = get_rms_norm_module(model)(64, eps=1e-3)
    assert torch.equal(module.weight, torch.full((64,), begins))
    normed = X / (X.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    torch.testing.assert_close(module(X), normed)
    torch.testing.assert_close(filled(module)(X), normed * (offset + module.weight))
    assert repr(module).endswith("RMSNorm((64,), eps=0.001)")


def test_llama_is_the_default_and_eps_is_1e_6():
    assert get_rms_norm_module() is get_rms_norm_module("llama")
    assert get_rms_norm_module()(8).variance_epsilon == 1e-6


def test_gradients_are_those_of_plain_pytorch():
    module, x = filled(get_rms_norm_module("gemma3", backend="cutile-cpu")(64)), X.clone().requires_grad_()
    found = torch.autograd.grad(module(x).square().sum(), [x, module.weight])
    normed = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + module.weight)
    torch.testing.assert_close(found, torch.autograd.grad(normed.square().sum(), [x, module.weight]))


@pytest.mark.parametrize("model", ["llama", "gemma3"])
def test_backend_binds(model):
    free, bound = get_rms_norm_module(model)(64), get_rms_norm_module(model, backend="PyTorch")(64)
    assert isinstance(bound, type(free))
    assert type(bound) is get_rms_norm_module(model, backend="torch")
    with tilegym.use_backend("cutile-cpu"), tilegym.trace() as calls:
        for module in (free, bound, copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):  # noqa: S301 - our own
            module(X)
    assert [call.backend for call in calls] == ["cutile-cpu", "torch", "torch", "torch"]


def test_a_subclass_of_a_bound_class_is_pickled_as_itself():
    module = Derived(64)
    again = pickle.loads(pickle.dumps(module))  # noqa: S301 - our own
    assert type(again) is Derived
    assert torch.equal(again.weight, module.weight)


class Derived(get_rms_norm_module(backend="torch")):
    """A user's own."""


def test_compiles_without_a_graph_break():
    module = filled(get_rms_norm_module("gemma3")(64))
    torch.testing.assert_close(torch.compile(module, fullgraph=True, backend="eager")(X), module(X))
