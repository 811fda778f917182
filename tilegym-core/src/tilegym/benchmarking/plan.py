"""What a run consists of: cases, directions and backends, and what is left out for which reason."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from tilegym import registry
from tilegym.availability import find_backend, why_unusable
from tilegym.benchmarking.cases import cases
from tilegym.errors import BackendUnavailableError, ContractError
from tilegym.selection import candidates_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from tilegym.benchmarking.cases import Case
    from tilegym.benchmarking.results import Direction
    from tilegym.contract import Sample

    Entry = tuple[Case, Direction, tuple[str, ...]]
    """A case, a direction, and the backends."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a run consists of."""

    entries: tuple[Entry, ...]
    left_out: Mapping[str, str]
    """What could have been in it, and why it is not."""

    @property
    def rows(self) -> int:
        """How many rows it gives."""
        return sum(len(backends) for _, _, backends in self.entries)

    @property
    def backends(self) -> list[str]:
        """All that take part, each once."""
        return list(dict.fromkeys(name for _, _, backends in self.entries for name in backends))


def plan(
    ops: Sequence[str],
    dtypes: Iterable[torch.dtype],
    device: torch.device,
    *,
    backends: Sequence[str] | None = None,
    quick: bool = False,
    backward: bool = False,
    samples: Mapping[str, Iterable[Sample]] | None = None,
    graph: bool = False,
) -> Plan:
    """What to time.

    Args:
        ops: names; none: every op with a contract.
        dtypes: those of the cases.
        device: where the tensors are.
        backends: names, of which those that implement an op take part; None: all that can run on the device, peers too.
        quick: small cases alone; the smallest of every op come first, lest time run out before all ops had their turn.
        backward: gradients too, where an op has them.
        samples: by op, the cases instead of its contract's.
        graph: whether the cases ask for a CUDA graph.

    Raises:
        UnknownOpError, UnknownBackendError, BackendUnavailableError: a name that nothing has, or nothing here.
        DtypeError: an op that was named does not take a dtype.
    """
    chosen = None if backends is None else tuple(_usable(name, device) for name in backends)
    left_out: dict[str, str] = {}
    entries: list[tuple[int, Entry]] = []
    for name in ops or registry.op_names():
        op = registry.get_op(name)
        if op.contract is None and not ops:
            left_out[name] = "it has no contract"
            continue
        servants = _candidates(name, device, left_out) if chosen is None else _able(name, chosen, left_out)
        for dtype in dtypes:
            try:
                of_op = None if samples is None else samples[name]
                found = cases(name, dtype, quick=quick, samples=of_op, graph=graph)
            except ContractError as error:  # only an op that was named must take the dtype
                if ops:
                    raise
                left_out[f"{name} in {str(dtype).removeprefix('torch.')}"] = str(error)
                continue
            for turn, case in enumerate(found if servants else ()):
                entries.append((turn, (case, "forward", servants)))
                if backward and case.backward is not None:
                    entries.append((turn, (case, "backward", servants)))
        if backward and op.contract is not None and op.contract.gradient is None:
            left_out[f"{name}, backward"] = "it has no gradient"
    if quick:
        entries.sort(key=itemgetter(0))
    return Plan(entries=tuple(entry for _, entry in entries), left_out=left_out)


def compile_ahead(planned: Plan, device: torch.device, jobs: int) -> None:
    """Have the kernels of a plan compiled before its first call, by those backends that can, in so many processes."""
    for name in planned.backends:
        compiler = registry.backends()[name].compile_ahead
        if compiler is not None:
            compiler([entry[:2] for entry in planned.entries if name in entry[2]], device, jobs)


def _usable(name: str, device: torch.device) -> str:
    backend = find_backend(name)
    reason = why_unusable(backend, device)
    if reason is not None:
        raise BackendUnavailableError(f"backend {backend.name!r} cannot run on {device}: {reason}")
    return backend.name


def _able(op: str, backends: tuple[str, ...], left_out: dict[str, str]) -> tuple[str, ...]:
    able = tuple(name for name in backends if registry.has_implementation(op, name))
    left_out |= {f"{op} on {name}": "it has no implementation" for name in backends if name not in able}
    return able


def _candidates(op: str, device: torch.device, left_out: dict[str, str]) -> tuple[str, ...]:
    known = registry.backends()
    reasons = {name: why_unusable(known[name], device) for name in candidates_of(registry.get_op(op))}
    left_out |= {f"backend {name}": reason for name, reason in reasons.items() if reason is not None}
    able = [name for name, reason in reasons.items() if reason is None]
    return tuple(sorted(able, key=lambda name: known[name].peer))
