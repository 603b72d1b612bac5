"""The Flower ServerApp, and what a run records and resumes from."""

import os

# For libraries that this process loads from here on; app.py limits those that Flower has loaded before.
os.environ.setdefault("OMP_NUM_THREADS", "1")
