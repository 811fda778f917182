"""The eager path: one generated function per op, which guards its tensors and runs what was resolved for their kind."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import torch

from tilegym.generated import generated
from tilegym.guards import absent, stand_in
from tilegym.profiling import profiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilegym.op import Op

_SHOWN: Final = {
    "tensor": "{0}",
    "optional": "(_absent_{0} if {0} is None else {0})",
    "list": "{0}",
    "any": "_stand_in({0}, _absent_{0})",
}
"""What `guards.shown` says, as source."""
_NESTED: Final = {
    "tensor": "{0}.is_nested",
    "optional": "{0} is not None and {0}.is_nested",
    "list": "any([one.is_nested for one in {0}])",
    "any": "False",
}
"""What no guard may be shown: PyTorch aborts the process when one asks a nested tensor for its strides."""


def public_function(op: Op) -> Callable[..., Any]:
    """The function that users call: the declared signature with `backend=` added."""
    from tilegym.calls import call_with_options, slow_call
    from tilegym.choice import scoped
    from tilegym.traced import traced_function

    name, signature = op.name.rpartition(".")[2], _with_backend(op)
    namespace: dict[str, Any] = {
        "_op": op,
        "_scoped": scoped,
        "_slow": slow_call,
        "_stand_in": stand_in,
        "_forward_ad": torch.autograd.forward_ad,
        "_profiled": profiled,
        "_profiler": torch.autograd.profiler,
        "_is_compiling": torch.compiler.is_dynamo_compiling,
        "_traced": traced_function(op.name, op.positional),
        "_with_options": call_with_options,
    }
    catch_all = next((p.name for p in op.parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    values = "".join(f"{p}, " for p in op.positional)
    lines = [
        f"def {name}{_written(signature, namespace)}:",
        "    if _is_compiling():",
        f"        return _traced(({values}), {catch_all or '{}'}, backend)",
    ]
    if catch_all:
        lines += [f"    if {catch_all}:", f"        return _with_options(_op, ({values}), {catch_all}, backend)"]
    guards = op.guarded
    namespace |= {f"_absent_{one.name}": absent(one.name) for one in guards}
    if guards:
        nested = " or ".join(_NESTED[one.form].format(one.name) for one in guards)
        lines += [
            "    if _forward_ad._current_level < 0:",
            "        try:",
            f"            _entries = () if {nested} else _op.table[_scoped() if backend is None else backend]",
            "        except (KeyError, TypeError, AttributeError):",
            "            _entries = ()",
            "        for _check, _run, _label in _entries:",
            f"            if _check({', '.join(_SHOWN[one.form].format(one.name) for one in guards)}):",
            "                if _profiler._is_profiler_enabled:",
            f"                    return _profiled(_label, _run, {', '.join(op.positional)})",
            f"                return _run({', '.join(op.positional)})",
        ]
    lines.append(f"    return _slow(_op, ({values}), {{}}, backend)")
    function = generated(name, "\n".join(lines) + "\n", namespace)
    functools.update_wrapper(function, op.declared)  # __wrapped__ is where tools evaluate the annotations
    function.__annotations__ = {"backend": "str | None", **op.declared.__annotations__}
    function.__signature__ = signature  # type: ignore[attr-defined]  # with annotations, which the source leaves out
    function.__tilegym_op__ = op  # type: ignore[attr-defined]  # how tools find the op
    function.contract = None  # type: ignore[attr-defined]  # spec files attach it
    return function


def _with_backend(op: Op) -> inspect.Signature:
    """The declared signature with a keyword `backend`, unless it has one."""
    signature = inspect.signature(op.declared)
    if "backend" in signature.parameters:
        return signature
    backend = inspect.Parameter("backend", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")
    catch_all = [p for p in op.parameters if p.kind is inspect.Parameter.VAR_KEYWORD]
    named = [p for p in op.parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
    return signature.replace(parameters=[*named, backend, *catch_all])


class _Name:
    """A default in generated source: the name of an object in its namespace."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _written(signature: inspect.Signature, namespace: dict[str, Any]) -> str:
    """The parameters as source, without annotations; defaults go into the namespace."""
    empty = inspect.Parameter.empty
    namespace |= {f"_default_{p.name}": p.default for p in signature.parameters.values() if p.default is not empty}
    plain = [
        p.replace(annotation=empty, default=empty if p.default is empty else _Name(f"_default_{p.name}"))
        for p in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
