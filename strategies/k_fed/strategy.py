"""k-FED: clients cluster their own data, the server groups their centres in one shot, then FedAvg in each group."""

import math
from collections.abc import Sequence

import numpy as np
from flwr.app import RecordDict

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.models import Models
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import nearest_centroid
from florets.strategies.k_fed.centres import group_centres, main_group
from florets.strategies.k_fed.messages import KMEANS
from florets.strategies.k_fed.settings import KFEDSettings
from florets.strategies.shared.fixed_groups import FixedGroups
from florets.task.randomness import Purpose
from florets.task.wire import kinds
from florets.task.wire.kmeans import LocalCentres, read_centres
from florets.task.wire.replies import Update


class KFED(Strategy[KFEDSettings, FixedGroups]):
    """One-shot federated k-means on the data themselves, whatever the models make of them.

    A client belongs to the group that holds most of its samples; group g trains initial model g by federated
    averaging, from round 1 on. What clients send are means of samples: of a client with a single sample, or with as
    many local clusters as samples, the samples themselves.

    Raises
    ------
    ValueError
        By `check`, if the initial arrays hold fewer models than `local_clusters`.

    Source: Dennis et al. 2021, Alg. 1 and 2, followed by FedAvg in each group; CLoVE, App. C.1.1. Deviation: by
    default clients run k-means++ with ten starts; ``local_method="awasthi_sheffet"`` is the paper's k-means.
    """

    Settings = KFEDSettings
    State = FixedGroups

    def check(self, models: Models) -> None:
        """Refuse more local clusters than models."""
        super().check(models)
        local = self.settings.local_clusters
        if local > models.count:
            raise ValueError(
                f"local_clusters={local}: a client cannot hold more groups than the {models.count} there are; lower "
                "local_clusters, or raise k"
            )

    def plan(self, context: Round) -> Plan[Update]:
        """Find the groups, or place newcomers; then every participant trains its group's model."""
        self.assignment.update(self.state.assign(self, context))
        return context.train_assigned(self.assignment)

    def describe(self, clients: Sequence[Client], context: Round) -> Replies[LocalCentres]:
        """Ask for the centres of each client's data."""
        own = self.settings
        # Labels are one-hot beside the input.
        length = math.prod(self.input_shape) + (self.num_outputs if own.features == "inputs_and_targets" else 0)
        settings: dict[str, object] = {kinds.LOCAL_CLUSTERS: own.local_clusters, kinds.FEATURES: own.features}
        if own.local_method != "kmeans":
            settings[kinds.LOCAL_METHOD] = own.local_method

        def read(_: str, content: RecordDict) -> LocalCentres:
            return read_centres(content, length, own.local_clusters)

        replies = context.ask(
            [context.request_custom(KMEANS, client, None, settings, category="query") for client in clients], read
        )
        means = [np.average(found.centres, axis=0, weights=found.sizes) for _, found in replies.ok]
        context.note_vectors("means", [key for key, _ in replies.ok], means)
        return replies

    def form(self, clients: Sequence[LocalCentres], context: Round) -> tuple[IntArray, FloatArray]:
        """Group all centres; a client belongs where most of its samples are."""
        owners = np.repeat(np.arange(len(clients)), [len(client.sizes) for client in clients])
        centres = np.concatenate([client.centres for client in clients])
        groups, means = group_centres(centres, owners, context.models.count, context.random(Purpose.CLUSTERING))
        own = [main_group(groups[owners == index], client.sizes) for index, client in enumerate(clients)]
        return np.array(own, dtype=np.int64), means

    def place(self, client: LocalCentres, centroids: FloatArray) -> int:
        """Return the group of a client that comes later, by the groups' means alone, as Dennis et al. have it."""
        return main_group(nearest_centroid(client.centres, centroids), client.sizes)
