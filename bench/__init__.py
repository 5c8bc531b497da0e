"""Benchmarks against floors: the bare driver doing the same, in turns, on the same servers."""
