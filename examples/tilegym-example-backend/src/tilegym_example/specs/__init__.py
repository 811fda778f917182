"""Contracts of the ops in pack `example`, one file each."""
