"""Tools to test ops and backends: sample arguments, the one error bound, and isolation from other tests."""

from tilegym.testing.accuracy import Accuracy, assert_accurate, measure
from tilegym.testing.implementations import LoadedImplementation, load_implementation
from tilegym.testing.isolation import isolated
from tilegym.testing.samples import materialize, poison

__all__ = [
    "Accuracy",
    "LoadedImplementation",
    "assert_accurate",
    "isolated",
    "load_implementation",
    "materialize",
    "measure",
    "poison",
]
