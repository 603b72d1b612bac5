"""Benchmarks, each with its own command. CPU seconds on one thread; compare ratios, not machines."""

import os

# Before NumPy and PyTorch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
