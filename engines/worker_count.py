"""The number of worker processes of a run."""

import os

from florets.conf.problems import ConfigError


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_workers(workers: int | str | None, num_clients: int) -> int:
    """Return the number of processes that `workers` stands for in process; ConfigError for more than clients."""
    if workers is None:
        return 1
    if isinstance(workers, str):
        return max(1, min(cores(), num_clients))
    if workers > num_clients:
        raise ConfigError(
            f"workers={workers}: more than clients ({num_clients}); use workers of at most {num_clients}."
        )
    return workers
