"""The conformance suite: what a backend must do for the ops it implements, as tests that anybody can run.

    pip install "tilegym-core[testing]"
    pytest --pyargs tilegym.conformance --tilegym-backend=NAME

or, in a plugin's own tests, a file of three lines:

    from tilegym.conformance.test_ops import *
    TILEGYM_BACKEND = "NAME"
"""

VERSION = 1
"""Grows with every check that a backend which passed before may fail. A backend states in its `Conformance` up to which
version it answers for; a newer check that fails there is told, and is no failure."""
