"""One experiment on the in-process engine: the one file that brings both apps together."""

from collections.abc import Sequence
from pathlib import Path

from client_app.app import app as client_app
from conf.run_folder import run_folder
from conf.schema import Config
from server_app.experiment import run_experiment
from server_app.local_grid import LocalGrid
from server_app.summary import RunSummary


def run(config: Config, overrides: Sequence[str]) -> RunSummary:
    """Run an experiment in this process and return its summary."""
    folder = (Path(config.results_dir) / run_folder(config, overrides)).absolute()
    return run_experiment(LocalGrid(client_app, config.num_clients), config, folder)
