"""Cores of this machine, and a word where more processes compute than it has."""

import os
from collections.abc import Iterable

from florets.conf.problems import ConfigError


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crowded(n_jobs: int, workers: Iterable[int | str | None]) -> str:
    """Return a warning where jobs at a time, each with its worker processes, are more than the cores; else nothing.

    Parameters
    ----------
    n_jobs
        Jobs at a time; joblib's negative numbers count down from the cores.
    workers
        The key `workers` of each job; None: one.
    """
    there = cores()
    at_a_time = n_jobs if n_jobs > 0 else max(1, there + 1 + n_jobs)
    most = max((there if number == "auto" else int(number or 1) for number in workers), default=1)
    if most == 1 or at_a_time * most <= there:
        return ""
    return (
        f"n_jobs={n_jobs} x workers={most}: {at_a_time * most} processes will share {there} cores and be "
        "slower for it; lower one of the two (results do not depend on them)"
    )


def num_workers(workers: int | str | None, num_clients: int) -> int:
    """Return the number of processes that `workers` stands for in process, where there are so many clients.

    Raises
    ------
    ConfigError
        If there are more than clients.
    """
    if workers is None:
        return 1
    if isinstance(workers, str):
        return max(1, min(cores(), num_clients))
    if workers > num_clients:
        raise ConfigError(
            [f"workers={workers}: more than clients ({num_clients}); use workers of at most {num_clients}."]
        )
    return workers
