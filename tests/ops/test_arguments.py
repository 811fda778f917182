"""What is no argument of an op is refused by its name: of every op."""

import pytest
import torch

from tilegym import registry
from tilegym.conformance.cells import cells_of
from tilegym.errors import ContractError
from tilegym.schemas import hints, parts
from tilegym.testing import materialize

SAMPLES = {cell.op: cell.sample for cell in reversed(list(cells_of("torch")))}


def without_tensors(op):
    """The parameters and hints that take none, unless they take anything."""
    kinds = hints(op.declared) | hints(op.contract.canonical)
    declared = {name: parts(kind) for name, kind in kinds.items() if name not in ("return", "kwargs")}
    plain = {name for name, found in declared.items() if torch.Tensor not in found.union(*map(parts, found))}
    return sorted(plain | {name for name, accepted in op.contract.hints.items() if accepted is not None})


@pytest.mark.parametrize(
    ("name", "parameter"), [(name, one) for name in SAMPLES for one in without_tensors(registry.get_op(name))]
)
def test_a_tensor_is_no_number_flag_or_hint(name, parameter):
    """One of several elements is neither true nor false to PyTorch; before and after calls of its kind are resolved."""
    op, arguments = registry.get_op(name).function, materialize(SAMPLES[name], dtype=torch.float32)
    for _ in range(2):
        with pytest.raises(ContractError, match=rf"{name}: .*{parameter}"):
            op(**arguments | {parameter: torch.ones(3)}, backend="torch")
        op(**arguments, backend="torch")
