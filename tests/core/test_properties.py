"""For any candidates: `auto` serves whenever one of them can, and a choice by name is that backend or an error."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tilegym
from tilegym.errors import NoImplementationError
from tilegym.ops import softmax

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
SIZES = (1, 2, 3)
NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Backend:
    """What one generated backend declares."""

    priority: int
    auto: bool
    usable: bool
    implements: bool
    dtypes: frozenset[str] | None
    sizes: frozenset[int]

    def takes(self, dtype: str, size: int) -> bool:
        listed = self.dtypes is None or dtype in self.dtypes
        return self.implements and self.usable and listed and size in self.sizes


BACKENDS = st.builds(
    Backend,
    priority=st.integers(-2, 2),
    auto=st.booleans(),
    usable=st.booleans(),
    implements=st.booleans(),
    dtypes=st.none() | st.frozensets(st.sampled_from([*DTYPES])),
    sizes=st.frozensets(st.sampled_from(SIZES)),
)
CALLS = st.lists(st.tuples(st.sampled_from([*DTYPES]), st.sampled_from(SIZES)), min_size=1, max_size=8)

DECLARED = """
generated = {}

@hookimpl
def tilegym_backends():
    return [
        Backend(
            name=name,
            priority=one.priority,
            auto=one.auto,
            probe=lambda device, one=one: None if one.usable else "not here",
        )
        for name, one in generated.items()
    ]
"""


@pytest.fixture
def declare(site):
    """Installs one distribution, whose backends are those of a dict."""
    site.install("drawn-dist", dedent(DECLARED))

    def declared(backends: dict[str, Backend]) -> None:
        import drawn_dist.plugin

        drawn_dist.plugin.generated = backends
        site.reload()
        for name, one in backends.items():
            if one.implements:
                supports = lambda x, one=one: None if x.shape[0] in one.sizes else "not this size"  # noqa: E731
                tilegym.register_impl("softmax", name, supports=supports, dtypes=one.dtypes)(lambda x, name=name: name)

    return declared


def expected_of_auto(backends: dict[str, Backend], dtype: str, size: int) -> str | None:
    able = [name for name, one in backends.items() if one.auto and one.takes(dtype, size)]
    return min(able, key=lambda name: (-backends[name].priority, name)) if able else None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(backends=st.dictionaries(st.sampled_from(NAMES), BACKENDS, min_size=1), calls=CALLS)
def test_auto_and_explicit_choice(declare, backends, calls):
    with tilegym.testing.isolated():
        declare(backends)
        for dtype, size in [*calls, *calls]:  # the second time by the fast path
            x = torch.ones(size, dtype=DTYPES[dtype])
            expected = expected_of_auto(backends, dtype, size)
            if expected is None:
                with pytest.raises(NoImplementationError):
                    softmax(x)
            else:
                assert softmax(x) == expected
            assert tilegym.explain("softmax", x).chosen == expected
            for name, one in backends.items():
                if one.takes(dtype, size):
                    assert softmax(x, backend=name) == name
                else:
                    with pytest.raises((NoImplementationError, ValueError)):
                        softmax(x, backend=name)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(backends=st.dictionaries(st.sampled_from(NAMES), BACKENDS, min_size=1), calls=CALLS, data=st.data())
@pytest.mark.filterwarnings("ignore::tilegym.errors.FallbackWarning")
def test_a_preference_serves_what_it_can_and_the_rest_is_autos(declare, backends, calls, data):
    usable = sorted(name for name, one in backends.items() if one.usable)
    if not usable:
        return
    preferred = data.draw(st.sampled_from(usable))
    with tilegym.testing.isolated():
        declare(backends)
        tilegym.set_backend(preferred)
        for dtype, size in [*calls, *calls]:
            x = torch.ones(size, dtype=DTYPES[dtype])
            takes = backends[preferred].takes(dtype, size)
            expected = preferred if takes else expected_of_auto(backends, dtype, size)
            if expected is None:
                with pytest.raises(NoImplementationError):
                    softmax(x)
            else:
                assert softmax(x) == expected
