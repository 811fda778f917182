"""Taking turns: tests that take long run a part of their variants by default, so that all of the suite ends in time."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pytest


def take_turns(config: pytest.Config, items: list[pytest.Item], group: Callable[[pytest.Item], object | None]) -> None:
    """Of the items of a group, keep one: which one depends on the group's name alone. `-m slow` keeps all.

    Args:
        config: pytest's.
        items: what was collected, changed in place.
        group: the group of an item, None for one that always runs.
    """
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        if (name := group(item)) is not None:
            groups.setdefault(name, []).append(item)
    kept = {same[zlib.crc32(str(name).encode()) % len(same)] for name, same in groups.items()}
    leave_out(config, items, {item for same in groups.values() for item in same} - kept)


def leave_out(config: pytest.Config, items: list[pytest.Item], late: Collection[pytest.Item]) -> None:
    """Take some of the items out, and tell pytest, unless `-m` speaks of slow ones."""
    if late and "slow" not in config.option.markexpr:
        config.hook.pytest_deselected(items=list(late))
        items[:] = [item for item in items if item not in late]


def of_marked(item: pytest.Item) -> object | None:
    """The group of an item marked `turns(*names)`: those that differ from it in the parameters of these names alone."""
    marker = item.get_closest_marker("turns")
    callspec = getattr(item, "callspec", None)
    if marker is None or callspec is None:
        return None
    others = sorted((name, str(value)) for name, value in callspec.params.items() if name not in marker.args)
    return item.nodeid.partition("[")[0], *others
