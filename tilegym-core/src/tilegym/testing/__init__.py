"""Tools to test ops and backends: sample arguments, the one error bound, isolation, and a base class for test files."""

from tilegym.testing.accuracy import Accuracy, assert_accurate, measure
from tilegym.testing.implementations import LoadedImplementation, load_implementation
from tilegym.testing.isolation import isolated
from tilegym.testing.samples import materialize, poison
from tilegym.testing.testcase import PyTestCase

__all__ = [
    "Accuracy",
    "LoadedImplementation",
    "PyTestCase",
    "assert_accurate",
    "isolated",
    "load_implementation",
    "materialize",
    "measure",
    "poison",
]
