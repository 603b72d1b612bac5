"""One experiment on one grid: check, build, run the rounds, record the results."""

import dataclasses
import logging
from pathlib import Path

import numpy as np
import yaml
from flwr.app import ArrayRecord
from flwr.serverapp import Grid

from conf.problems import ConfigError
from conf.schema import Config
from server_app.build import build_models, build_strategy, build_task, message_settings
from server_app.recorder import Recorder
from server_app.summary import RunSummary
from strategies.base import ClusteredStrategy
from strategies.core import FloatArray
from strategies.models import Models
from strategies.round import RoundReport
from task.wire import bank

log = logging.getLogger("florets")

_LARGEST_LOSS_MATRIX = 2500
"""Entries (clients x models) that still make a legible picture."""
_LARGEST_LOSS_MATRIX_BYTES = 4 * 2**30
"""Bytes of models sent, over all clients; Local-only's many models would soon pass any round's."""


def run_experiment(grid: Grid, config: Config, folder: Path) -> RunSummary:
    """Run an experiment and leave its results in `folder`.

    Raises
    ------
    ConfigError
        If data, partition, model and their options do not fit together; before any client is asked for anything.
    FederationError
        If the clients that are there cannot run it.
    """
    log.info("results folder: %s", folder)
    task = build_task(config)
    try:
        task.check()
        strategy = build_strategy(config)
        models = Models(build_models(config, task), strategy.shared_layers)
        strategy.check(models)
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    settings = message_settings(config, task)
    # Clients first, folder second: a run that cannot start leaves the results of an earlier one alone.
    strategy.federation.refresh(grid, settings)
    try:
        recorder = Recorder(
            folder=folder,
            config_yaml=yaml.safe_dump(dataclasses.asdict(config), sort_keys=False),
            experiment=config.experiment,
            strategy=config.strategy.name,
            seed=config.seed,
            num_rounds=strategy.first_rounds + config.num_rounds,
            quiet=config.quiet,
            task_title=f"{config.task.data}, {config.task.partition}, {config.task.model}",
        )
    except ValueError as error:
        raise ConfigError([str(error)]) from error
    with recorder:

        def on_round(report: RoundReport, _: ArrayRecord) -> bool:
            clients = list(strategy.federation.clients.values())
            if len(clients) != recorder.num_clients:
                recorder.clients(clients)
            ari = recorder.round(report)["ari"]
            return config.stop_at_ari is not None and ari is not None and ari >= config.stop_at_ari

        result = strategy.start(
            grid, models.record, num_rounds=config.num_rounds, train_config=settings, on_round=on_round
        )
        arrays = {
            f"{index}/{name}": array.numpy()
            for index, model in enumerate(bank.models(result.arrays))
            for name, array in model.items()
        }
        losses = loss_matrix(strategy, Models(result.arrays))
        return recorder.finish(arrays, strategy.evaluations, strategy.assignment, losses)


def loss_matrix(strategy: ClusteredStrategy, models: Models) -> tuple[list[str], FloatArray] | None:
    """Ask every online client for its loss on every final model; None where there are too many of them."""
    clients = strategy.federation.online()
    sent = len(clients) * sum(len(array.data) for array in models.record.values())
    if len(clients) * models.count > _LARGEST_LOSS_MATRIX or sent > _LARGEST_LOSS_MATRIX_BYTES:
        log.info("no loss matrix: %d clients x %d models are too many", len(clients), models.count)
        return None
    replies = strategy.context.ask_losses(clients, models)
    if not replies.ok:
        return None
    return [key for key, _ in replies.ok], np.stack([reply.losses for _, reply in replies.ok])
