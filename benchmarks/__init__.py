"""Benchmarks: `make bench` runs them all. CPU seconds on one thread; compare ratios, not machines."""
