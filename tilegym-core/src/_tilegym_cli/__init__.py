"""The command `tilegym`.

A package of its own, so that it can still speak when another distribution has overwritten the package `tilegym`:
nothing of `tilegym` is imported here or in `foreign` until that is ruled out.
"""

import sys
import warnings


def main() -> None:
    """Run the command line; exit with 1, and the repair, if the package `tilegym` is not ours."""
    from _tilegym_cli.foreign import why_not_ours

    problem = why_not_ours()
    if problem is not None:
        sys.exit(problem)
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # torch's; nothing here needs numpy
    from _tilegym_cli.app import run

    run()
