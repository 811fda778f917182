"""What TileGym's dispatcher costs: host time of a call beyond calling the implementation directly.

    python benchmarks/dispatch_overhead.py [--json]

Each figure is the best of many runs, so that a busy machine disturbs it least. The implementations do nothing, so that
nothing but the dispatcher is timed; PyTorch's own ops on the same tensor, which do compute, stand beside for scale.
"""

from __future__ import annotations

import argparse
import json
import timeit
from typing import TYPE_CHECKING, Any

import torch

import tilegym

if TYPE_CHECKING:
    from collections.abc import Callable

BACKEND = "nothing"
X = torch.ones(4, 4)
W, B = torch.ones(4), torch.ones(4)


@tilegym.dispatch("overhead_plain")
def plain(x: torch.Tensor) -> torch.Tensor:
    """Has no contract."""


@tilegym.dispatch("overhead_options")
def options(x: torch.Tensor, scale: float = 1.0, **kwargs: Any) -> torch.Tensor:
    """Takes options."""


def implementation_of(op: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function that does nothing, and return it."""
    return tilegym.register_impl(op.__tilegym_op__.name, BACKEND)(function)


def best(call: Callable[[], Any], *, number: int, repeat: int) -> float:
    """Nanoseconds a call."""
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number * 1e9


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Name → the call through TileGym, and the call of its implementation directly."""
    softmax, rms_norm = tilegym.ops.softmax, tilegym.ops.rms_norm
    one = implementation_of(plain, lambda x: x)
    two = implementation_of(options, lambda x, scale, **more: x)  # noqa: ARG005 - the op's parameters
    softmax_one = implementation_of(softmax, lambda x: x)
    norm = implementation_of(
        rms_norm,
        lambda input, normalized_shape, weight, eps, bias, offset: input,  # noqa: ARG005 - the contract's parameters
    )
    return {
        "one tensor, set_backend": (lambda: plain(X), lambda: one(X)),
        "one tensor, backend=": (lambda: plain(X, backend=BACKEND), lambda: one(X)),
        "one tensor, op takes **kwargs": (lambda: options(X, 2.0), lambda: two(X, 2.0)),
        "one tensor and a keyword option": (lambda: options(X, 2.0, rows=4), lambda: two(X, 2.0, rows=4)),
        "one tensor and two as options": (lambda: options(X, 2.0, w=W, b=B), lambda: two(X, 2.0, w=W, b=B)),
        "softmax's contract": (lambda: softmax(X), lambda: softmax_one(X)),
        "rms_norm's contract, three tensors": (
            lambda: rms_norm(X, (4,), W, 1e-6, B),
            lambda: norm(X, (4,), W, 1e-6, B, 0.0),
        ),
    }


def measure(*, number: int, repeat: int) -> list[dict[str, Any]]:
    """A row for each case; the scope's is the first case again inside `use_backend`."""
    rows = []

    def add(name: str, through: Callable[[], Any], direct: Callable[[], Any]) -> None:
        for _ in range(5):
            through()
        direct_ns, through_ns = (best(call, number=number, repeat=repeat) for call in (direct, through))
        rows.append({"case": name, "direct_ns": direct_ns, "call_ns": through_ns, "over_ns": through_ns - direct_ns})

    listed = cases()
    tilegym.set_backend(BACKEND)
    for name, (through, direct) in listed.items():
        add(name, through, direct)
    tilegym.set_backend("auto")
    with tilegym.use_backend(BACKEND):
        add("one tensor, in a use_backend scope", *listed["one tensor, set_backend"])
    for name, call in {
        "torch.softmax": lambda: torch.softmax(X, -1),
        "torch.nn.functional.silu": lambda: torch.nn.functional.silu(X),
    }.items():
        rows.append({"case": name, "call_ns": best(call, number=number, repeat=repeat)})
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--number", type=int, default=2000, help="calls a run (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=400, help="runs, of which the best counts (default: %(default)s)")
    chosen = parser.parse_args()
    rows = measure(number=chosen.number, repeat=chosen.repeat)
    if chosen.json:
        print(json.dumps({"torch": torch.__version__, "number": chosen.number, "repeat": chosen.repeat, "rows": rows}))
        return
    print(f"{'nanoseconds':36} {'direct':>8} {'call':>8} {'over':>8}")
    for row in rows:
        numbers = (f"{row[key]:8.0f}" if key in row else " " * 8 for key in ("direct_ns", "call_ns", "over_ns"))
        print(f"{row['case']:36} {' '.join(numbers)}")


if __name__ == "__main__":
    main()
