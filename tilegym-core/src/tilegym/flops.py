"""Floating-point operations of the torch ops, for `torch.utils.flop_counter.FlopCounterMode`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilegym.differentiation import Differentiation


def register(formulas: Mapping[str, Callable[..., int]]) -> None:
    """Register the formulas of torch ops, by name, once somebody has loaded PyTorch's counter: it loads Triton."""
    counter = sys.modules.get("torch.utils.flop_counter")
    if counter is None:
        return
    for name, formula in formulas.items():
        op = getattr(torch.ops.tilegym, name)
        if op not in counter.flop_registry:
            counter.register_flop_formula(op, get_raw=True)(formula)
        for mode in _get_current_dispatch_mode_stack():  # one that counts already has a copy of the registry
            if isinstance(mode, counter._FlopCounterMode):  # noqa: SLF001 - as above
                mode.counter.flop_registry.setdefault(op, formula)


def of_backward(differentiation: Differentiation, given: tuple[Any, ...]) -> int:
    """Those of NAME_bwd, from its arguments. An input that is not among them has the shape of what is like it."""
    named = dict(zip(differentiation.parameters, given, strict=True))
    gradient, contract = differentiation.gradient, differentiation.op.contract
    assert contract is not None  # noqa: S101 - it has a gradient, says the contract; for the type checker
    alike = {name: named[like] for name, like in zip(gradient.inputs, gradient.like, strict=True)}
    canonical = [named.get(name, alike.get(name)) for name in differentiation.op.canonical_parameters]
    return 2 * contract.flops(*canonical) if gradient.flops is None else gradient.flops(*canonical)
