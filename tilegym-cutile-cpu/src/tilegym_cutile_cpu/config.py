"""The settings of this package. Nothing else reads the environment."""

from __future__ import annotations

import os

SANITIZE_VARIABLE = "TILEGYM_CUTILE_CPU_SANITIZE"

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")


def sanitize_by_default() -> bool:
    """Whether launches are sanitized when the caller does not say: the variable TILEGYM_CUTILE_CPU_SANITIZE."""
    text = os.environ.get(SANITIZE_VARIABLE, "")
    value = text.strip().lower()
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f"{SANITIZE_VARIABLE} is {text!r}; expected one of {', '.join(_TRUE)} or {', '.join(_FALSE[1:])}")
