"""Start of a run's workers: whether the engine has any, and what they are handed."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

from flwr.serverapp import Grid

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.reports.console import counted, say
from florets.server_app.local_grid import LocalGrid, NodeConfig
from florets.server_app.resume.own_code import paths_of
from florets.server_app.workers.backend import WorkersFailed
from florets.server_app.workers.client_side import LoadClientSide
from florets.server_app.workers.number import num_workers
from florets.server_app.workers.process_backend import ProcessBackend
from florets.server_app.workers.worker_grid import WorkerGrid
from florets.task import given
from florets.task.task import Task


@contextmanager
def worker_grid(load: LoadClientSide, config: Config, nodes: list[NodeConfig]) -> Iterator[WorkerGrid]:
    """Yield the grid of a run whose clients' work is done by workers: processes, or actors of a Ray cluster.

    Parameters
    ----------
    load
        Brings the ClientApp; other processes import it by its name.
    nodes
        Node config of each node with data of its own; none: there are `num_clients` simulated ones.

    Raises
    ------
    ConfigError
        If there are more workers than clients, or a Ray cluster cannot be reached or has too few CPUs.
    """
    num_nodes = len(nodes) or config.num_clients
    files = given.files_of(paths_of(config))
    if config.engine != "ray":
        processes = ProcessBackend(load, config.start_timeout, files)
        count = num_workers(config.workers, num_nodes)
        with closing(WorkerGrid(load, num_nodes, nodes or None, count, processes)) as grid:
            yield grid
        return
    # Ray is an extra.
    from florets.server_app.workers.ray_backend import RayBackend
    from florets.server_app.workers.ray_cluster import connected, num_actors

    # A number of workers waits for its CPUs by itself.
    with connected(config.ray_address, wait=not isinstance(config.workers, int)) as cpus:
        count = num_actors(config.workers, num_nodes, *cpus)
        say(f"Ray: {counted(count, 'actor')}, on a cluster of {counted(cpus[0], 'CPU')}", sys.stderr)
        backend = RayBackend(load, config.start_timeout, config.data_dir, files)
        with closing(WorkerGrid(load, num_nodes, nodes or None, count, backend)) as grid:
            yield grid


def share_task(grid: Grid, config: Config, task: Task) -> None:
    """Hand a run's task to the clients of its grid, where they are this process's own.

    Raises
    ------
    ConfigError
        If workers are asked for on an engine that has none, or those of a Ray cluster cannot start.
    """
    if config.engine == "ray" and not isinstance(grid, WorkerGrid):
        raise ConfigError(["engine=ray: this run is on Flower's own engine already; leave it out."])
    able = isinstance(grid, WorkerGrid) or (config.workers == "auto" and isinstance(grid, LocalGrid))
    if config.workers not in (None, 1) and not able:
        raise ConfigError(
            [f"workers={config.workers}: needs the in-process engine; leave it out, or use engine=local."]
        )
    if isinstance(grid, LocalGrid):
        try:
            grid.share(task)
        except WorkersFailed as error:
            raise ConfigError([f"{error}."]) from error
