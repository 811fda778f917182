"""What users' test files import: `from .. import common`, then `common.PyTestCase`."""

from tilegym.testing import PyTestCase

__all__ = ["PyTestCase"]
