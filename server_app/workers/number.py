"""The number of workers that a configuration stands for."""

from florets.conf.problems import ConfigError
from florets.server_app.cores import cores


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
