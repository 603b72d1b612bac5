"""Runs a checked experiment on its engine: this process, worker processes, or Flower's own command."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

from florets.conf.extras import require
from florets.conf.problems import ConfigError
from florets.conf.saved import results_folder
from florets.conf.schema import Config
from florets.conf.validate import check_own_clients
from florets.reports.console import say
from florets.reports.summary import RunSummary

if TYPE_CHECKING:
    from florets.engines.local_grid import LocalGrid
    from florets.engines.workers import ClientSide

_LOADED = [
    "florets.client_app.app",
    "florets.client_app.batching",
    "florets.engines.workers",
    __name__,
]
"""Modules of the process that worker processes are copies of: it loads them once, and computes nothing."""

_running = threading.Lock()
"""Held while a run goes on in this process."""


def run(config: Config, overrides: Sequence[str]) -> RunSummary:
    """Run a checked experiment, whose folders are absolute, on the engine that it names and return its summary.

    The results folder is named after the `overrides`.
    """
    return run_in(config, results_folder(config, overrides))


def resume(config: Config, folder: Path) -> RunSummary:
    """Go on with the interrupted run in `folder` and return its summary; `config` comes from `read_resume`."""
    return run_in(config, folder, resume=True)


def run_in(config: Config, folder: Path, resume: bool = False) -> RunSummary:
    """Run a checked experiment on the engine that it names, with its results in `folder`."""
    # Imported here: torch and Flower cost seconds, which `--help` and a mistyped key should not.
    if config.engine == "flwr":
        if not config.superlink:
            require("sim", "engine=flwr")
        from florets.engines import flower_run

        return flower_run.run_in(folder, config, resume)
    if config.clients_per_node > 1:
        raise ConfigError(
            f"clients_per_node={config.clients_per_node}: engine={config.engine} has no nodes that host clients; "
            "leave it out, or use engine=flwr."
        )
    # Clients in this process share what they keep between messages.
    if not _running.acquire(blocking=False):
        raise ConfigError(
            "a run is in progress in another thread of this process; wait for it, or use another process."
        )
    try:
        with _grid(config) as grid:
            from florets.server_app.experiment import run_experiment

            return run_experiment(grid, config, folder, resume)
    finally:
        _running.release()


@contextmanager
def same_data() -> "Iterator[None]":
    """Let runs in this process use the data that an earlier one in the block has read: no file changes meanwhile."""
    from florets.client_app.session import session

    with session.keeping_data():
        yield


@contextmanager
def _grid(config: Config) -> "Iterator[LocalGrid]":
    if config.workers not in (None, 1):
        # It loads while this process does.
        start_fork_server()
    from florets.client_app.app import app as client_app
    from florets.client_app.batching import in_blocks
    from florets.client_app.session import session
    from florets.engines.local_grid import LocalGrid
    from florets.engines.own_nodes import check_device, own_nodes
    from florets.task.data.tables.declaration import unread_files

    nodes = own_nodes(config)
    if nodes and not config.task.table.owner:
        for name, remedy in unread_files(Path(config.data_dir)).items():
            say(f"florets: {config.data_dir}: {name} is not read; {remedy}", sys.stderr)
    check_own_clients(config, len(nodes))
    check_device(config, nodes)
    num_nodes = len(nodes) or config.num_clients
    workers = num_workers(config.workers, num_nodes)
    if workers == 1:
        yield LocalGrid(client_app, num_nodes, nodes or None, in_blocks, session.adopt)
        return
    from florets.engines.worker_grid import WorkerGrid
    from florets.server_app.own_code import paths_of
    from florets.task import given

    with closing(
        WorkerGrid(client_side, num_nodes, nodes or None, workers, given.files_of(paths_of(config)))
    ) as grid:
        yield grid


def num_workers(workers: int | str | None, num_clients: int) -> int:
    """Return the number of processes that `workers` stands for in process; ConfigError for more than clients."""
    if workers is None:
        return 1
    if isinstance(workers, str):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(cores, num_clients))
    if workers > num_clients:
        raise ConfigError(
            f"workers={workers}: more than clients ({num_clients}); use workers of at most {num_clients}."
        )
    return workers


def start_fork_server() -> None:
    """Let it begin to load; where it runs already, do nothing."""
    forkserver.set_forkserver_preload(_LOADED)
    forkserver.ensure_running()


def client_side() -> "ClientSide":
    """Return the ClientApp for a worker."""
    from florets.client_app.app import app as client_app
    from florets.client_app.batching import cut_blocks, in_blocks
    from florets.client_app.session import session
    from florets.engines.workers import ClientSide

    return ClientSide(client_app, in_blocks, cut_blocks, session.adopt)
