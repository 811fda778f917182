"""The public API's types, held by `mypy --strict`; nothing here runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn, ones
from typing_extensions import assert_type

import tilegym
from tilegym import backend as backends
from tilegym.contract import Contract
from tilegym.explanation import Explanation
from tilegym.hookspecs import DispatchEvent
from tilegym.ops import silu_and_mul

x = ones(2, 4)

# Ops, by attribute and by import; packs that a stub cannot know are Any.
assert_type(tilegym.ops.softmax(x), Tensor)
assert_type(tilegym.ops.softmax(x, use_tma=True, backend="cutile"), Tensor)
assert_type(tilegym.ops.rms_norm(x, (4,), None, 1e-6, bias=None, offset=1.0), Tensor)
assert_type(silu_and_mul(x, out=None, backend=None), Tensor)
assert_type(tilegym.ops.activation.gelu(x, approximate="tanh"), Tensor)
assert_type(tilegym.ops.some_pack.some_op(x), Any)
assert_type(tilegym.ops.get_rms_norm_module("gemma3", backend="torch"), type[nn.Module])
tilegym.ops.softmax([1.0])  # type: ignore[arg-type]  # no tensor
tilegym.ops.softmax(x, True, "cutile")  # type: ignore[call-arg]  # backend is keyword-only

# Choosing a backend.
assert_type(tilegym.set_backend("torch"), None)
assert_type(tilegym.get_current_backend(), str)
assert_type(tilegym.get_available_backends(), list[str])
assert_type(tilegym.is_backend_available("cutile"), bool)
assert_type(tilegym.assert_backend_available("torch"), None)
assert_type(tilegym.has_backend_impl("softmax", "torch"), bool)
assert_type(tilegym.get_available_backends_for_op("softmax"), list[str])
assert_type(tilegym.get_registry_info(), dict[str, list[str]])
assert_type(tilegym.print_registry_info(), None)
assert_type(backends.get_available_triton_backend(), str)
assert_type(backends.set_backend("auto"), None)
tilegym.set_backend(None)  # type: ignore[arg-type]  # "auto" resets

with tilegym.use_backend("torch") as nothing:
    assert_type(nothing, None)
with tilegym.use_backend("cutile", softmax="torch"), tilegym.use_backend(rms_norm="cutile"):
    pass


@tilegym.use_backend("torch")
def decorated(x: Tensor, *, scale: float = 1.0) -> Tensor:
    return tilegym.ops.softmax(x) * scale


assert_type(decorated(x, scale=2.0), Tensor)
decorated(x, scale="2")  # type: ignore[arg-type]  # the decorator keeps the signature


# Telling what happens.
assert_type(tilegym.explain("softmax", x), Explanation)
assert_type(tilegym.explain(tilegym.ops.softmax, x, backend="torch").to_dict(), dict[str, Any])
assert_type(tilegym.explain("softmax").chosen, str | None)
assert_type(tilegym.resolve("softmax", backend="torch"), Callable[..., Any])
with tilegym.trace() as calls:
    assert_type(calls, list[DispatchEvent])


# Declaring an op and its implementations.
@tilegym.dispatch("scaled")
def scaled(x: Tensor, factor: float = 2.0) -> tuple[Tensor, int]:
    raise NotImplementedError


@tilegym.register_impl("scaled", backend="torch")
def scaled_torch(x: Tensor, factor: float) -> tuple[Tensor, int]:
    return x * factor, 1


assert_type(scaled(x), tuple[Tensor, int])
assert_type(scaled(x, factor=3.0), tuple[Tensor, int])
assert_type(scaled.contract, Contract | None)
assert_type(scaled_torch(x, 2.0), tuple[Tensor, int])
scaled("x")  # type: ignore[arg-type]  # the declared signature counts
scaled_torch(x)  # type: ignore[call-arg]  # and so does the implementation's
tilegym.nothing_of_the_kind  # type: ignore[attr-defined]  # noqa: B018 - the lazy module does not answer to any name
