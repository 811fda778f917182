"""Who is told of calls: listeners among the plugins, and `tilegym.trace()`. Until one is, nothing is paid for it."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tilegym import registry
from tilegym.hookspecs import DispatchEvent
from tilegym.log import logger
from tilegym.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilegym.op import Op
    from tilegym.selection import Call, Selection

_lock = threading.Lock()
_tracing = 0
_telling: ContextVar[bool] = ContextVar("tilegym_telling", default=False)
_records: ContextVar[tuple[list[DispatchEvent], ...]] = ContextVar("tilegym_trace", default=())


def listening() -> bool:
    """Whether somebody traces: every call then takes the slow path, and leaves no table entry."""
    return _tracing > 0


@contextmanager
def trace() -> Iterator[list[DispatchEvent]]:
    """Record every call of an op made in this thread or task inside the block.

    Meanwhile plugins' `tilegym_on_dispatch` hooks are called too, for calls of any thread.

        with tilegym.trace() as calls:
            model(x)
        print(calls[0].op, calls[0].backend, calls[0].reason)
    """
    calls: list[DispatchEvent] = []
    token = _records.set((*_records.get(), calls))
    _count(1)
    try:
        yield calls
    finally:
        _count(-1)
        _records.reset(token)


def _count(step: int) -> None:
    global _tracing  # noqa: PLW0603 - how many traces are open in the process
    with _lock:
        _tracing += step
    registry.changed(in_registry=False)  # compiled code is not traced, and need not compile again


def tell(op: Op, selection: Selection, call: Call, seconds: float) -> None:
    """Tell everybody of a call; an error of a listener is logged and goes no further."""
    if _telling.get():  # a listener's own calls are told to nobody, or it would be told of them for ever
        return
    event = DispatchEvent(
        op=op.name,
        backend=selection.implementation.backend,
        reason=selection.reason,
        inputs=tuple((tuple(t.shape), str(t.dtype).removeprefix("torch."), str(t.device)) for t in call.tensors),
        seconds=seconds,
    )
    for calls in _records.get():
        calls.append(event)
    token = _telling.set(True)
    try:
        for plugin in catalogue().plugins:
            if plugin.on_dispatch is not None and plugin.error is None:
                _tell_plugin(plugin.label, plugin.on_dispatch, event)
    finally:
        _telling.reset(token)


def _tell_plugin(label: str, on_dispatch: Any, event: DispatchEvent) -> None:
    try:
        on_dispatch(event=event)
    except (Exception, SystemExit):  # noqa: BLE001 - a listener's error never reaches the op
        logger.exception("%s: its tilegym_on_dispatch failed", label)
