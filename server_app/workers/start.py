"""Start of a run's worker processes: whether the engine has any, and what they are handed."""

from flwr.serverapp import Grid

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.cores import cores
from florets.server_app.local_grid import LocalGrid
from florets.server_app.workers.worker_grid import WorkerGrid
from florets.task.task import Task


def num_workers(workers: int | str, num_clients: int) -> int:
    """Return the number of processes that `workers` stands for, where there are so many clients.

    Raises
    ------
    ConfigError
        If there are more than clients.
    """
    if isinstance(workers, str):
        return max(1, min(cores(), num_clients))
    if workers > num_clients:
        raise ConfigError(
            [f"workers={workers}: more than clients ({num_clients}); use workers of at most {num_clients}."]
        )
    return workers


def share_task(grid: Grid, config: Config, task: Task) -> None:
    """Hand a run's task to the clients of its grid, where they are this process's own.

    Raises
    ------
    ConfigError
        If workers are asked for on an engine that has none.
    """
    able = isinstance(grid, WorkerGrid) or (config.workers == "auto" and isinstance(grid, LocalGrid))
    if config.workers != 1 and not able:
        raise ConfigError(
            [f"workers={config.workers}: needs the in-process engine; leave it out, or use engine=local."]
        )
    if isinstance(grid, LocalGrid):
        grid.share(task)
