"""Our backend keeps the contracts of all ops it implements: TileGym's own suite, run here."""

from tilegym.conformance.test_ops import *  # noqa: F403 - the tests themselves

TILEGYM_BACKEND = "example"
