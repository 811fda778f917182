"""Tools to test ops and backends: sample arguments, and the one error bound."""

from tilegym.testing.accuracy import Accuracy, assert_accurate, measure
from tilegym.testing.samples import materialize, poison

__all__ = ["Accuracy", "assert_accurate", "materialize", "measure", "poison"]
