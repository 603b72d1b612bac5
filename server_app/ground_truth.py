"""Comparison with the ground truth, which only a simulation knows."""

from collections.abc import Callable

import numpy as np
from flwr.app import ArrayRecord

from florets.reports.summary import FIGURES
from florets.strategies.base.models import Models
from florets.strategies.core.metrics import model_error
from florets.task.new_client import best_of_each_cluster
from florets.task.task import Task
from florets.task.wire import bank


class Truth:
    """Compare a round's models with the task's true models and true clusters.

    Parameters
    ----------
    task : Task
        The server's own copy; clients are not asked.
    cluster_test : bool
        Whether all models are also tested on each true cluster's test data.
    """

    def __init__(self, task: Task, cluster_test: bool) -> None:
        self._task = task
        self._cluster_test = cluster_test

    def figures(
        self, models: Callable[[], ArrayRecord], evaluated: bool, server_round: int = 0
    ) -> dict[str, float | None]:
        """Return the figures of K models.

        Parameters
        ----------
        models : callable
            Gives the models after a round; called where there is something to compare them with, as it may build
            a model for each client.
        evaluated : bool
            Whether this is a round of test evaluation; the clusters are tested in no other.
        server_round : int
            The round, whose true clusters count.

        Returns
        -------
        dict
            ``model_error``, see `core.model_error`; None where no true models are known, or the models
            have other parameters than they. ``cluster_error`` and ``cluster_loss``: of each true cluster the lowest
            test error (share of wrong classes) and the lowest loss that one of the K models has on the cluster's test
            data, mean over clusters; None where they are not tested, and ``cluster_error`` without classes.
        """
        found: dict[str, float | None] = dict.fromkeys(FIGURES)
        # Nodes with data of their own: the server has none to look at.
        true_models = None if self._task.is_own else self._task.data.true_models
        if true_models is not None:
            own = Models(models())
            if own.layout.size == true_models.shape[1]:
                found["model_error"] = model_error(own.bank, true_models.astype(np.float64))
        if self._cluster_test and evaluated:
            models_as_arrays = ({name: array.numpy() for name, array in m.items()} for m in bank.models(models()))
            found["cluster_loss"], found["cluster_error"] = best_of_each_cluster(
                self._task, models_as_arrays, server_round
            )
        return found

    def data_changed(self, server_round: int) -> int:
        """Return how many clients have other data in a round than in the one before."""
        task = self._task
        if task.version(server_round) == task.version(server_round - 1):
            return 0
        pairs = zip(task.shards_at(server_round - 1), list(task.shards_at(server_round)), strict=True)
        return sum(old is not new for old, new in pairs)

    def changes(self, last_round: int) -> list[tuple[int, int, int]]:
        """Return (partition id, round, true cluster) of each client in round 1 and wherever it changes later."""
        if not self._task.drifts:
            return []
        found: list[tuple[int, int, int]] = []
        known: list[int | None] = [None] * self._task.num_clients
        for server_round in range(1, last_round + 1):
            for client, shard in enumerate(self._task.shards_at(server_round)):
                if shard.cluster != known[client]:
                    known[client] = shard.cluster
                    found.append((client, server_round, shard.cluster))
        return sorted(found)
