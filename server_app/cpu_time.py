"""CPU time of this process and of the worker processes that it has had."""

import time

_workers = 0.0


def add_workers(seconds: float) -> None:
    """Count CPU seconds of worker processes that have ended."""
    global _workers
    _workers += seconds


def cpu_seconds() -> float:
    """Return the CPU seconds so far; those of workers count once they have ended."""
    return time.process_time() + _workers
