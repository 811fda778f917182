"""`tilegym demo`: a small decoder block on real text, on every backend that can run here, every result checked.

The block reads bytes, and gives the probabilities of the next one. Weights are seeded, not trained: what it shows is
that the ops compute what their contracts say, on tensors such as a model has.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from _tilegym_cli.listings import backends_in_order, no_backend
from _tilegym_cli.tables import console, lines, show, table
from tilegym import registry
from tilegym.availability import why_unusable
from tilegym.errors import NoImplementationError
from tilegym.testing import measure
from tilegym.text import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from tilegym.contract import Contract
    from tilegym.hookspecs import Backend

TEXT: Final = (
    "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a "
    "wife. However little known the feelings or views of such a man may be on his first entering a neighbourhood, this "
    "truth is so well fixed in the minds of the surrounding families, that he is considered as the rightful property "
    "of some one or other of their daughters. 'My dear Mr. Bennet,' said his lady to him one day, 'have you heard that "
    "Netherfield Park is let at last?' Mr. Bennet replied that he had not."
)
OPS: Final = ("rms_norm", "silu_and_mul", "softmax")
DTYPE: Final = torch.bfloat16
_BATCH, _LENGTH, _WIDTH, _HIDDEN, _BYTES = 4, 128, 256, 512, 256
_TEMPERATURE: Final = 0.8
_TIMED_RUNS: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One op on one backend."""

    op: str
    backend: str
    device: str | None = None
    """Where it ran; None: nowhere."""
    status: str
    """right, wrong (beyond a bound), failed (raised), or not run (refused, for a reason)."""
    reason: str | None = None
    """Why it was not run, failed, or is wrong."""
    norm_error: float | None = None
    norm_bound: float | None = None
    element_ratio: float | None = None
    """The largest error of an element, as a part of that element's bound; None: a NaN or infinity is out of place."""
    milliseconds: float | None = None
    """The best of a few calls after the first."""


def decoder_block(call: Callable[..., Tensor], device: torch.device) -> Tensor:
    """Probabilities of the byte that follows each byte of the text.

    Args:
        call: runs an op: `call(name, **arguments)`.
        device: where.

    Returns:
        (4, 128, 256), bfloat16.
    """
    random = torch.Generator().manual_seed(0)

    def weight(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=random) / math.sqrt(_WIDTH)).to(device, DTYPE)

    embedding, up, down = weight(_BYTES, _WIDTH), weight(_WIDTH, 2 * _HIDDEN), weight(_HIDDEN, _WIDTH)
    gain = (1 + 0.1 * torch.randn(_WIDTH, generator=random)).to(device, DTYPE)
    tokens = torch.tensor(list(TEXT.encode()[: _BATCH * _LENGTH]), device=device).reshape(_BATCH, _LENGTH)

    x = embedding[tokens]
    normed = call("rms_norm", input=x, normalized_shape=(_WIDTH,), weight=gain, eps=1e-6)
    hidden = call("silu_and_mul", input=normed @ up)
    logits = (x + hidden @ down) @ embedding.T
    return call("softmax", x=logits / _TEMPERATURE)


def demo_report() -> dict[str, Any]:
    """A row per op and backend, and whether every backend that can run here was right."""
    rows: list[Row] = []
    for backend in backends_in_order():
        rows += _rows_of(backend)
    ran = [row for row in rows if row.device is not None]
    problem = None
    if not rows:
        problem = no_backend()
    elif not ran:
        problem = "No installed backend can run here."
    return {
        "ok": any(row.status == "right" for row in ran) and not any(row.status in ("wrong", "failed") for row in ran),
        "problem": problem,
        "dtype": str(DTYPE).removeprefix("torch."),
        "rows": [asdict(row) for row in rows],
        "next": "tilegym doctor" if problem or len(ran) < len(rows) else "tilegym explain softmax --shape 512x256",
    }


def _rows_of(backend: Backend) -> list[Row]:
    device, reason = _device_for(backend)
    if device is None:
        return [Row(op=op, backend=backend.name, status="not run", reason=reason) for op in OPS]
    rows: list[Row] = []

    def call(op: str, **arguments: Any) -> Tensor:
        row, result = _measured(op, arguments, backend.name, device)
        rows.append(row)
        return result

    decoder_block(call, device)
    return rows


def _device_for(backend: Backend) -> tuple[torch.device | None, str | None]:
    """The first device on which a backend can run, GPUs before the CPU; or why there is none."""
    kinds = backend.device_types or (("cuda", "cpu") if torch.cuda.is_available() else ("cpu",))
    reasons = {kind: why_unusable(backend, torch.device(kind)) for kind in kinds}
    usable = [kind for kind, reason in reasons.items() if reason is None]
    return (torch.device(usable[0]), None) if usable else (None, reasons[kinds[0]])


def _measured(op: str, arguments: dict[str, Any], backend: str, device: torch.device) -> tuple[Row, Tensor]:
    """An op's row and result; where the backend gives no result, the contract's reference lets the block go on."""
    found = registry.get_op(op)
    contract = cast("Contract", found.contract)  # core's own ops have one each

    def run() -> Tensor:
        result = found.function(**arguments, backend=backend)
        if not isinstance(result, torch.Tensor) or result.dtype is not DTYPE:
            kind = result.dtype if isinstance(result, torch.Tensor) else type(result).__name__
            raise TypeError(f"expected a tensor of {DTYPE}, got {kind}")
        return result

    try:
        result = run()
        (accuracy,) = measure(contract, arguments, result)
        row = Row(
            op=op,
            backend=backend,
            device=device.type,
            status="right" if accuracy.ok else "wrong",
            reason=None if accuracy.ok else str(accuracy),
            norm_error=accuracy.norm_error,
            norm_bound=accuracy.norm_bound,
            element_ratio=accuracy.element_ratio if math.isfinite(accuracy.element_ratio) else None,
            milliseconds=_milliseconds(run, device),
        )
    except NoImplementationError as error:
        return Row(op=op, backend=backend, status="not run", reason=_first_line(error)), _reference(contract, arguments)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a backend raises is its row's reason
        row = Row(op=op, backend=backend, device=device.type, status="failed", reason=describe(error))
        return row, _reference(contract, arguments)
    return row, result


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _reference(contract: Contract, arguments: dict[str, Any]) -> Tensor:
    canonical = contract.canonical(**arguments)
    result: Tensor = contract.reference(*(v.double() if isinstance(v, torch.Tensor) else v for v in canonical))
    return result.to(DTYPE)


def _milliseconds(run: Callable[[], object], device: torch.device) -> float:
    seconds = []
    for _ in range(_TIMED_RUNS):
        started = time.perf_counter()
        run()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return 1e3 * min(seconds)


def show_demo(report: Mapping[str, Any]) -> None:
    """A table, the reasons below it, and what to do next."""
    target = console()
    rows = report["rows"]
    if rows:
        shape = f"{_BATCH} x {_LENGTH} bytes of text, width {_WIDTH}, {report['dtype']}"
        headings = ("backend", "op", "device", "result", "error", "bound", "worst", "ms")
        table(target, f"A decoder block: {shape}", headings, [_cells(row) for row in rows])
        show(target, "error: |result - reference| / |reference|; worst: an element's error as a part of its bound\n")
    lines(target, "Why not", _reasons(rows))
    if any(row["device"] == "cpu" for row in rows):
        show(target, "Times on a CPU show that it ran; they say nothing about speed.")
    if report["problem"]:
        show(target, report["problem"])
    show(target, f"Next: {report['next']}  (in a checkout: hatch run {report['next']})")


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    formats = {"norm_error": ".1e", "norm_bound": ".1e", "element_ratio": ".2f", "milliseconds": ".3f"}
    figures = (None if row[name] is None else format(row[name], spec) for name, spec in formats.items())
    return row["backend"], row["op"], row["device"], row["status"], *figures


def _reasons(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Each backend's reason once where it is the same for all ops, otherwise op by op."""
    found: dict[str, str] = {}
    for backend in dict.fromkeys(row["backend"] for row in rows):
        own = [row for row in rows if row["backend"] == backend and row["reason"]]
        if len(own) == len(OPS) and len({row["reason"] for row in own}) == 1:
            found[backend] = own[0]["reason"]
        else:
            found |= {f"{backend}, {row['op']}": row["reason"] for row in own}
    return found
