"""One-shot clustering: clients estimate models alone, k-means groups the estimates, then FedAvg in each group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.round import Round
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import centroids, cluster, nearest_centroid
from florets.strategies.settings import Experiment, ManyModels
from florets.strategies.shared.estimates import ask_estimates
from florets.strategies.shared.frozen_groups import FrozenClusters, FrozenGroups
from florets.task.keys import setting
from florets.task.randomness import Purpose
from florets.task.wire.leaving import MODELS

EPOCHS = 10
"""Passes over a client's data for its estimate by training."""


@dataclass(frozen=True)
class OneShotSettings(ManyModels):
    """Clients estimate models alone, k-means groups the estimates once, then FedAvg in each group."""

    freezes: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"descriptors"})

    estimate: Literal["train", "least_squares"] = setting(
        "train", "a client's estimate: local training, or the shortest least-squares solution (linear regressions)"
    )

    def problems(self, run: Experiment) -> list[str]:
        """Refuse least squares for what is no linear regression."""
        task = run.task
        linear = task.model == "linear" or ":" in task.model
        if self.estimate == "train" or (linear and "squared_error" in task.loss):
            return []
        return [
            "strategy.estimate=least_squares: is for linear regressions (task.model=linear and a squared error), not "
            f"for task.model={task.model} with task.loss={task.loss}; use strategy.estimate=train."
        ]


@dataclass
class OneShotState(FrozenGroups):
    """What is remembered of the groups, and of how they were found."""

    # The model that estimates by training start from; None before round 1.
    reference: Models | None = None


class OneShot(FrozenClusters[OneShotSettings, OneShotState]):
    """Cluster the clients once, by models that each of them estimated on its own data.

    Group g then trains initial model g by federated averaging, from round 1 on. Wrong groups stay wrong, which is
    what the iterative algorithms are measured against.

    Estimates by training start from the first round's model 0, the same start for all, newcomers included, since
    estimates of a network are comparable only then.

    Source: two-phase paper (mixed regression), section V, benchmark (2), after Ghosh et al. 2019. Deviation: neither
    says where FedAvg starts; the run's initial models are taken, as for every other strategy.
    """

    Settings = OneShotSettings
    State = OneShotState

    def all_leaving(self) -> frozenset[str]:
        """Name models too where gradients are averaged: clients' own estimates are models."""
        return super().all_leaving() | {MODELS}

    def describe(self, clients: Sequence[Client], r: Round) -> Replies[FloatArray]:
        """Ask for each client's own estimate of its model: its trainable parameters, flat."""
        if self.state.reference is None:
            self.state.reference = r.models.replaced(r.models.bank[:1])
        kind = self.settings.estimate
        replies = ask_estimates(clients, r, self.state.reference, EPOCHS, kind=kind, is_judged=False)
        # Counters and running statistics would outweigh the parameters.
        compared = r.models.layout.trained
        vectors = {key: update.vector[compared] for key, update in replies.ok}
        r.note_vectors("estimates", list(vectors), list(vectors.values()))
        return replies.of(vectors)

    def form(self, clients: Sequence[FloatArray], r: Round) -> tuple[IntArray, FloatArray]:
        """Group the estimates by k-means."""
        vectors = np.stack(clients)
        groups = cluster(vectors, r.models.count, "kmeans", r.random(Purpose.CLUSTERING))
        return groups, centroids(vectors, groups)

    def place(self, client: FloatArray, centroids: FloatArray) -> int:
        """Return the group whose mean estimate is nearest."""
        return int(nearest_centroid(client[np.newaxis], centroids)[0])
