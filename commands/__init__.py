"""The subcommands of `florets`, thin over the public functions."""

import os

# Here, before any module of this package can load NumPy or torch, which read it once. With more threads sums differ
# in their last bits, and the jobs of a sweep fight for cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
