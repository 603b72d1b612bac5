"""One-shot clustering: clients estimate models alone, k-means groups the estimates, then FedAvg in each group."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.context import Plan, RoundContext
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import ClusteredStrategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import centroids, cluster, nearest_centroid
from florets.strategies.shared.fixed_groups import FixedGroups
from florets.task.randomness import Purpose
from florets.task.wire import kinds
from florets.task.wire.replies import read_update


class OneShot(ClusteredStrategy):
    """Cluster the clients once, by models that each of them estimated on its own data.

    Group g then trains initial model g by federated averaging, from round 1 on. Wrong groups stay wrong, which is
    what the iterative algorithms are measured against.

    Parameters
    ----------
    estimate
        "train": local training from model 0, the same start for all, since estimates of a network are comparable
        only then. "least_squares": the shortest least-squares solution; linear regressions only.
    estimate_epochs
        Passes over the local data of "train", with the run's optimiser.
    common
        Parameters of `ClusteredStrategy`; K is the number of models in the initial arrays.

    Source: two-phase paper (mixed regression), section V, benchmark (2), after Ghosh et al. 2019. Deviation: neither
    says where FedAvg starts; the run's initial models are taken, as for every other strategy.
    """

    def __init__(
        self,
        *,
        estimate: Literal["train", "least_squares"] = "train",
        estimate_epochs: int = 10,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if estimate_epochs < 1:
            raise ValueError(f"estimate_epochs={estimate_epochs}: a client needs at least 1 pass for an estimate")
        self.settings = {kinds.ESTIMATE: estimate, kinds.LOCAL_EPOCHS: estimate_epochs}
        self.groups = FixedGroups()

    @property
    def phase(self) -> str:
        """The groups are found in round 1."""
        return self.groups.phase

    def plan(self, context: RoundContext) -> Plan:
        """Find the groups, or place newcomers; then every participant trains its group's model."""
        self.assignment.update(self.groups.assign(self, context, self.federation.online(), self.assignment))
        return context.train_assigned(self.assignment)

    def describe(self, clients: Sequence[Client], context: RoundContext) -> Replies[FloatArray]:
        """Ask for each client's own estimate of its model, flat, without counters."""
        layout, first = context.models.layout, context.models.one(0)
        # Counters say nothing of the data, and would outweigh the parameters.
        compared = ~layout.integers

        def read(_: str, content: RecordDict) -> FloatArray:
            return read_update(content, layout, 0).vector[compared]

        requests = [context.request(kinds.TRAIN_ESTIMATE, client, first, self.settings) for client in clients]
        return context.ask(requests, read)

    def form(self, clients: Sequence[FloatArray], context: RoundContext) -> tuple[IntArray, FloatArray]:
        """Group the estimates by k-means."""
        vectors = np.stack(clients)
        groups = cluster(vectors, context.models.count, "kmeans", context.random(Purpose.CLUSTERING))
        return groups, centroids(vectors, groups)

    def place(self, client: FloatArray, centroids: FloatArray) -> int:
        """Return the group whose mean estimate is nearest."""
        return int(nearest_centroid(client[np.newaxis], centroids)[0])
