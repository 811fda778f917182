"""Backend `cutile-cpu` conforms to every contract."""

from tilegym.conformance.test_ops import *  # noqa: F403 - the suite's tests, run here

TILEGYM_BACKEND = "cutile-cpu"
