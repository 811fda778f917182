"""Implementations, one file per op; found by file name."""
