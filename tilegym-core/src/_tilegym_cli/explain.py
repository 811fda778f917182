"""`tilegym explain`: builds real arguments of an op from a shape, and asks which backend would take them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch
import typer

from _tilegym_cli.tables import console, lines, show, table
from tilegym import registry
from tilegym.contract import Sample, TensorSpec
from tilegym.errors import ContractError
from tilegym.explanation import explain
from tilegym.testing import materialize
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tilegym.op import Op

_SHORT: Final = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}


def parse_shape(text: str) -> tuple[int, ...]:
    """`128x1000` → (128, 1000)."""
    parts = text.lower().replace(",", "x").split("x")
    if not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"expected sizes joined by x, such as 128x1000, got {text!r}")
    return tuple(int(part) for part in parts)


def parse_dtype(text: str) -> torch.dtype:
    """`bf16` or `bfloat16` → torch.bfloat16."""
    found = getattr(torch, _SHORT.get(text, text), None)
    if not isinstance(found, torch.dtype):
        raise typer.BadParameter(f"expected a dtype of torch, such as bfloat16 or bf16, got {text!r}")
    return found


def parse_device(text: str) -> torch.device:
    """`cuda:1` → that device, if tensors can be put there."""
    try:
        device = torch.device(text)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise typer.BadParameter(f"tensors cannot be put on {text!r}: {describe(error)}") from None
    return device


def explain_report(
    name: str, shape: tuple[int, ...] | None, dtype: torch.dtype, device: torch.device, backend: str | None
) -> dict[str, Any]:
    """The explanation of a call with a first tensor of this shape; without a shape, of the op as such."""
    arguments = {} if shape is None else _arguments(registry.get_op(name), shape, dtype, device)
    return explain(name, backend=backend, **arguments).to_dict()


def _arguments(op: Op, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """Arguments that the contract accepts, made from one of its samples with the first tensor brought to a shape."""
    return materialize(sample_of_shape(op, shape, dtype), dtype=dtype, device=device)


def sample_of_shape(op: Op, shape: tuple[int, ...], dtype: torch.dtype) -> Sample:
    """One of the contract's samples, with the first tensor brought to a shape, that the contract accepts."""
    if op.contract is None:
        raise typer.BadParameter(f"{op.name} has no contract to make arguments from; leave --shape out")
    contract, refused = op.contract, None
    for sample in _resized(contract.samples(), shape):
        arguments = materialize(sample, dtype=dtype, device="meta")
        try:
            contract.canonical(**{key: value for key, value in arguments.items() if key not in contract.hints})
        except ContractError as error:
            refused = refused or error
        else:
            return Sample(name="x".join(map(str, shape)), args=sample.args)
    why = refused or "it has no sample to start from"
    raise typer.BadParameter(f"no arguments of {op.name} go with a first tensor of shape {shape}: {why}")


def _resized(samples: Iterable[Sample], shape: tuple[int, ...]) -> Iterator[Sample]:
    """Samples with the first tensor's shape replaced, and with it the same sizes in all shapes; nearest rank first."""
    plain = []
    for sample in samples:
        first = next((spec for spec in sample.args.values() if isinstance(spec, TensorSpec)), None)
        if first is not None and first.layout == "contiguous" and min(first.shape, default=0) > 1:
            plain.append((first, sample))
    for first, sample in sorted(plain, key=lambda pair: abs(len(pair[0].shape) - len(shape))):
        sizes = dict(zip(reversed(first.shape), reversed(shape), strict=False))
        args = {name: _replaced(value, first, shape, sizes) for name, value in sample.args.items()}
        yield Sample(name=sample.name, args=args)


def _replaced(value: Any, first: TensorSpec, shape: tuple[int, ...], sizes: dict[int, int]) -> Any:
    if value is first:
        return replace(value, shape=shape)
    if isinstance(value, TensorSpec):
        return replace(value, shape=tuple(sizes.get(size, size) for size in value.shape))
    if isinstance(value, tuple):  # a shape, as rms_norm's normalized_shape
        return tuple(sizes.get(size, size) for size in value)
    return value


def show_explanation(report: Mapping[str, Any]) -> None:
    """The choice, and how far each candidate got."""
    target = console()
    chosen = f"{report['op']} runs on {report['chosen']}. {report['reason']}"
    show(target, (chosen if report["chosen"] else report["reason"]) + "\n")
    headings = ("backend", "usable", "importable", "takes this call")
    table(target, "Candidates", headings, map(_states, report["candidates"]))
    lines(target, "Why not", {row["backend"]: row["reason"] for row in report["candidates"] if row["reason"]})


def _states(candidate: Mapping[str, Any]) -> tuple[object, ...]:
    """Its name, and yes or no up to the first no; what comes after was not looked at."""
    states = [candidate["usable"], candidate["importable"], candidate["supports"]]
    known = states.index(False) + 1 if False in states else len(states)
    return (candidate["backend"], *states[:known], *[None] * (len(states) - known))
