"""Measurements of the models outside the rounds: against the ground truth, and each on every client's data."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord

from florets.reports.console import counted, size
from florets.reports.summary import UNMEASURED, Distances
from florets.strategies.base.models import Models
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.strategies.core.metrics import model_error
from florets.task.task import Task
from florets.task.wire import bank
from florets.task.wire.replies import Losses


class Truth:
    """Compare a round's models with the true models and clusters of the server's own copy of the task.

    With `cluster_test` all models are also tested on each true cluster's test data.
    """

    def __init__(self, task: Task, cluster_test: bool) -> None:
        self._task = task
        self._cluster_test = cluster_test

    def distances(self, models: Callable[[], ArrayRecord], evaluated: bool, server_round: int = 0) -> Distances:
        """Return the distances of K models from the truth.

        `models` gives those after a round, where there is something to compare them with: it may build a model for
        each client. Clusters are tested where the round is `evaluated`.
        """
        found = UNMEASURED
        # Nodes with data of their own: the server has none to look at.
        true_models = None if self._task.is_own else self._task.data.true_models
        if true_models is not None:
            own = Models(models())
            if own.layout.size == true_models.shape[1]:
                found = found._replace(model_error=model_error(own.bank, true_models.astype(np.float64)))
        if self._cluster_test and evaluated:
            from florets.task.new_client import best_of_each_cluster

            models_as_arrays = ({name: array.numpy() for name, array in m.items()} for m in bank.models(models()))
            loss, error = best_of_each_cluster(self._task, models_as_arrays, server_round)
            found = found._replace(cluster_error=error, cluster_loss=loss)
        return found

    def data_changed(self, server_round: int) -> int:
        """Return how many clients have other data in a round than in the one before."""
        task = self._task
        if task.version(server_round) == task.version(server_round - 1):
            return 0
        pairs = zip(task.shards_at(server_round - 1), list(task.shards_at(server_round)), strict=True)
        return sum(old is not new for old, new in pairs)


_MOST_ENTRIES = 2500
"""Entries (clients x models) that still make a legible picture."""
_MOST_BYTES = 4 * 2**30
"""Bytes of models sent, over all clients; Local-only's many models would soon pass any round's."""
_AT_ONCE = 32
"""Clients of this process that are asked at once: no deadline can interrupt them, and one is looked at in between."""

TIMEOUT = 60.0
"""Seconds that the loss matrix may take."""


def loss_matrix(
    strategy: Strategy[Any, Any], models: Models, serial: bool, note: Callable[[str], None]
) -> tuple[list[str], FloatArray] | None:
    """Ask every online client for its loss on every final model; return the clients that replied and (M, K) losses.

    None where there are too many clients, it takes longer than `TIMEOUT`, or nobody replied. `serial` clients work
    one after the other in this process.
    """
    clients = strategy.federation.online()
    sent = len(clients) * sum(len(array.data) for array in models.record.values())
    extent = f"{counted(len(clients), 'client')} x {counted(models.count, 'model')}, {size(sent)} to send"
    if len(clients) * models.count > _MOST_ENTRIES or sent > _MOST_BYTES:
        note(f"no loss matrix: {extent}, are too many")
        return None
    note(f"loss matrix: {extent}")
    # A figure for the results, like tests: the algorithm's layers are not around it.
    last = strategy.context
    context = replace(last, timeout=min(TIMEOUT, last.timeout), layers=())
    rows, missing, start = list[tuple[str, Losses]](), 0, time.monotonic()
    step = _AT_ONCE if serial else max(len(clients), 1)
    for first in range(0, len(clients), step):
        replies = context.ask_losses(clients[first : first + step], models, all_samples=True)
        rows += replies.ok
        missing += len(replies.missing)
        if serial and time.monotonic() - start > TIMEOUT and first + step < len(clients):
            note(f"no loss matrix: it takes longer than {TIMEOUT:g} s; loss_matrix=false leaves it out")
            return None
    if missing:
        note(f"the loss matrix lacks {missing} of {counted(len(clients), 'client')}, which did not answer in time")
    if not rows:
        return None
    return [key for key, _ in rows], np.stack([reply.losses for _, reply in rows])
