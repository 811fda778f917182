"""The signature of a new op, as `tilegym new op --signature` reads it, in the forms in which templates need it."""

from __future__ import annotations

import ast
import io
import itertools
import math
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from _tilegym_cli.scaffold import check_free, check_name, render

if TYPE_CHECKING:
    from collections.abc import Iterable

DEFAULTS: Final = {
    "elementwise": "x: Tensor, alpha: float = 0.1",
    "row": "x: Tensor, eps: float = 1e-6",
    "matmul": "a: Tensor, b: Tensor",
}
"""Kind of op → its signature, unless one is given."""

_COUNTS: Final = {"elementwise": None, "row": (1, 1), "matmul": (2, 0)}
"""Kind → how many tensors and numbers its example has; None: a tensor or more, and any numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """Tensors first, then numbers, which have defaults."""

    tensors: tuple[str, ...]
    floats: dict[str, str]
    """Name → the default's source."""

    def formula(self, gate: str, suffix: str = "") -> str:
        """The example of kind elementwise: the gated first tensor times the others, plus a share of the first."""
        product = " * ".join([gate, *(tensor + suffix for tensor in self.tensors[1:])])
        return " + ".join([product, *(f"{number} * {self.tensors[0]}{suffix}" for number in self.floats)])

    def context(self) -> dict[str, Any]:
        """What templates may name."""
        tensors, floats = self.tensors, self.floats
        return {
            "tensors": list(tensors),
            "floats": list(floats),
            "first": tensors[0],
            "others": list(tensors[1:]),
            "names": ", ".join([*tensors, *floats]),
            "annotated": _list([f"{name}: Tensor" for name in tensors], [f"{name}: float" for name in floats]),
            "declared": _list(
                [f"{name}: Tensor" for name in tensors], [f"{name}: float = {value}" for name, value in floats.items()]
            ),
            "defaulted": _list(tensors, [f"{name}={value}" for name, value in floats.items()]),
            "kinds": _list(["Tensor"] * len(tensors), ["float"] * len(floats)),
            "converted": _returned([*tensors, *(f"float({name})" for name in floats)]),
            "absolute": _list([f"{name}.abs()" for name in tensors], [f"abs({name})" for name in floats]),
            "tensor_names": _tuple([f'"{name}"' for name in tensors]),
            "float_tuple": _tuple(floats),
            "tensor_kinds": ", ".join(["Tensor"] * len(tensors)),
            "gradients": ", ".join(f"d{name}" for name in tensors),
            "gradients_returned": _returned([f"d{name}" for name in tensors]),
            "formula": self.formula,
        }


def _list(tensors: Iterable[str], floats: Iterable[str]) -> str:
    return ", ".join([*tensors, *floats])


def _tuple(items: Iterable[str]) -> str:
    found = list(items)
    return f"({found[0]},)" if len(found) == 1 else f"({', '.join(found)})"


def _returned(items: list[str]) -> str:
    return ", ".join(items) if len(items) > 1 else _tuple(items)


def parse_signature(text: str, kind: str) -> Signature:
    """`x: Tensor, alpha: float = 0.1` → its parts.

    Raises:
        typer.BadParameter: it is no signature, or not one that this kind's example can be written for.
    """
    tensors: list[str] = []
    floats: dict[str, str] = {}
    taken = names_in_use(kind)
    for name, annotation, default in _parameters(text, DEFAULTS[kind]):
        check_name(name, "parameter")
        check_free(name, "something in the files to be written", taken)
        taken |= {name, f"d{name}", f"{name}_tile"}
        if annotation == "Tensor" and default is None:
            tensors.append(name)
        elif annotation == "float" and default is not None and _is_finite(default):
            floats[name] = default
        else:
            raise typer.BadParameter(
                f"parameter {name!r}: expected `NAME: Tensor` or `NAME: float = NUMBER`; begin with such ones, and "
                "edit the files that are written"
            )
    expected = _COUNTS[kind]
    if not tensors or (expected is not None and expected != (len(tensors), len(floats))):
        raise typer.BadParameter(
            f"an op of kind {kind} begins with parameters such as {DEFAULTS[kind]!r}, got {text!r}"
        )
    return Signature(tensors=tuple(tensors), floats=floats)


def names_in_use(kind: str) -> set[str]:
    """What the files of a kind call things of their own, which neither an op nor its parameters can be called."""
    tensors, numbers = _COUNTS[kind] or (2, 1)
    signature = Signature(
        tensors=tuple(f"tensor_{index}" for index in range(tensors)),
        floats={f"number_{index}": "1.0" for index in range(numbers)},
    )
    files = render(f"op/{kind}", Path(), "op_0", signature.context() | {"name": "op_0", "label": "op_0"})
    tokens = [token for text in files.values() for token in tokenize.generate_tokens(io.StringIO(text).readline)]
    return {
        token.string
        for before, token in itertools.pairwise(tokens)
        if token.type == tokenize.NAME and before.string != "."  # an attribute's name is nobody else's
    }


def _parameters(text: str, example: str) -> list[tuple[str, str | None, str | None]]:
    """Name, annotation and default of each parameter, as source."""
    try:
        body = ast.parse(f"def op({text}): ...").body
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        raise typer.BadParameter(f"{text!r} is no list of parameters such as {example!r}: {error}") from None
    function = body[0]
    if len(body) > 1 or not isinstance(function, ast.FunctionDef) or function.returns is not None:
        raise typer.BadParameter(f"{text!r} is no list of parameters such as {example!r}")
    found = function.args
    if found.posonlyargs or found.vararg or found.kwonlyargs or found.kwarg:
        raise typer.BadParameter(f"parameters such as {example!r} are written without * and /, got {text!r}")
    defaults = [None] * (len(found.args) - len(found.defaults)) + [*found.defaults]
    return [
        (one.arg, _source(one.annotation), _source(default)) for one, default in zip(found.args, defaults, strict=True)
    ]


def _source(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


def _is_finite(default: str) -> bool:
    try:
        return math.isfinite(ast.literal_eval(default))
    except (ValueError, TypeError):
        return False
