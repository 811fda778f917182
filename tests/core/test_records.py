"""Dataclasses from JSON: what does not fit is told, and never bent."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from tilegym.errors import RecordError
from tilegym.records import from_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    size: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outer:
    name: str
    swap: bool
    scale: float
    pair: tuple[int, bool]
    many: tuple[int, ...]
    order: Literal["rows", "columns"]
    inner: Inner
    maybe: Inner | None
    since: float | None = None


WHOLE = Outer(
    name="x", swap=True, scale=0.5, pair=(3, False), many=(), order="rows", inner=Inner(size=None), maybe=Inner(size=1)
)


def test_a_field_with_a_default_may_be_missing():
    data = json.loads(json.dumps(asdict(WHOLE)))
    assert from_json(Outer, data | {"since": 2}, "here").since == 2.0
    del data["since"]
    assert from_json(Outer, data, "here") == WHOLE


def test_a_record_is_read_as_it_was_written():
    assert from_json(Outer, json.loads(json.dumps(asdict(WHOLE))), "here") == WHOLE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"swap": 1}, "here: swap: expected bool, got 1"),
        ({"scale": "1"}, "here: scale: expected float, got '1'"),
        ({"scale": float("nan")}, "here: scale: expected a number from 0 on, got nan"),
        ({"pair": [3]}, r"here: pair: expected tuple, got \[3\]"),
        ({"pair": [3, 0]}, r"here: pair\[1\]: expected bool, got 0"),
        ({"many": [1, 2.0]}, r"here: many\[1\]: expected int, got 2.0"),
        ({"order": "both"}, "here: order: expected 'rows' or 'columns', got 'both'"),
        ({"inner": None}, "here: inner: expected an object with the fields of Inner, got None"),
        ({"inner": {}}, "here: inner: fields missing or unknown: size"),
        ({"maybe": {"size": True}}, "here: maybe: size: expected int, got True"),
        ({"more": 1}, "here: fields missing or unknown: more"),
    ],
)
def test_what_does_not_fit_is_told(change, message):
    with pytest.raises(RecordError, match=f"^{message}$"):
        from_json(Outer, json.loads(json.dumps(asdict(WHOLE) | change)), "here")
