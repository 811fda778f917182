"""Kernels whose default configuration may spill registers: (kernel, architecture) → the reason."""

ALLOWED: dict[tuple[str, str], str] = {}
