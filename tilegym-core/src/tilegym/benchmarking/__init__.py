"""Benchmarks: what is timed, how, against which ceiling, and how results are kept. `tilegym bench` is the way in."""
