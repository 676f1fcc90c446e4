"""Benchmarks: run by hand with `python -m tests.bench.<name>`, never collected by pytest."""
