"""Liger-Kernel's functions, one file per op; found by file name."""
