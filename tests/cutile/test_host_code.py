"""Host code allocates, makes views and launches: it neither computes with torch nor copies, in any op."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tilegym import get_registry_info
from tilegym.guards import tensors_in
from tilegym.testing import load_implementation, materialize
from tilegym_cutile.runtime import recording

OPS = [op for op, backends in get_registry_info().items() if "cutile" in backends]
ALLOWED = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "new_empty", "zeros", "zeros_like"),
        *("as_strided", "expand", "slice", "transpose", "unsqueeze", "view"),
    }
)


class OnlyAllocations(TorchDispatchMode):
    """Lets through what makes a tensor or a view."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket.__name__ in ALLOWED, f"host code calls {func}"
        return func(*args, **(kwargs or {}))


def launches_of(function, arguments):
    with recording() as launches, OnlyAllocations():
        result = function(arguments)
    return result, launches


@pytest.mark.parametrize("op", OPS)
def test_host_code_neither_computes_nor_copies(op):
    implementation = load_implementation(op, "cutile")
    for sample in implementation.contract.samples():
        arguments = materialize(sample, dtype=torch.bfloat16)
        _, launches = launches_of(implementation, arguments)
        assert launches or not all(one.numel() for one in tensors_in(arguments.values())), sample.name
        if implementation.contract.gradient is not None and sample.args.get("out") is None:
            launches_of(implementation.differentiate, materialize(sample, dtype=torch.bfloat16))


@pytest.mark.parametrize("compute", [torch.exp, torch.Tensor.contiguous, torch.Tensor.half, lambda x: x + 1])
def test_torch_in_host_code_is_caught(compute):
    with pytest.raises(AssertionError, match="host code calls"):
        launches_of(compute, torch.randn(4, 6).t())
