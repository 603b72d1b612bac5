"""PACFL: clients are grouped once, by principal angles between their data, then FedAvg in each group."""

import math
from collections.abc import Sequence

from flwr.app import RecordDict

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client
from florets.strategies.base.strategy import Strategy
from florets.strategies.core import FloatArray
from florets.strategies.pacfl.angles import Directions, angle_matrix
from florets.strategies.pacfl.messages import PRINCIPAL_VECTORS
from florets.strategies.pacfl.settings import PACFLSettings
from florets.strategies.shared.linked_groups import LinkedGroups
from florets.task.wire import kinds
from florets.task.wire.principal_vectors import read_principal_vectors
from florets.task.wire.replies import Update


class PACFL(Strategy[PACFLSettings, LinkedGroups]):
    """Cluster the clients once, by what their inputs look like, before any training.

    Each client sends the first p left singular vectors of its inputs, as they are and not centred, of each of its
    classes; agglomerative clustering groups the clients by the angles between these vectors, and each group trains a
    model by federated averaging, all from the same first model. Groups that differ in what a label means alone are
    invisible to it.

    The vectors show what a client's data look like: of inputs that are not centred the first one is about the mean
    of a class.

    Source: Vahidian et al. 2023 (PACFL): single-shot clustering of the proximity matrix of principal angles, FedAvg
    in each cluster, later clients by the extended matrix. p = 3, vectors of each class and the linkage are those of
    the published code. Deviation: the code's threshold in degrees is tuned for each data set, so that the default
    cuts the tree at its largest gap; clusters are merged below the threshold and not at it, so that 0 leaves every
    client alone; who has a model keeps it when later clients change the tree.
    """

    Settings = PACFLSettings
    State = LinkedGroups

    @property
    def linkage(self) -> str:
        """How distances of merged clusters are measured."""
        return self.settings.linkage

    def plan(self, context: Round) -> Plan[Update]:
        """Find the groups, or place later clients; then every participant trains its group's model."""
        return self.state.plan(self, context)

    def describe(self, clients: Sequence[Client], context: Round) -> Replies[Directions]:
        """Ask for the principal vectors of each client's inputs."""
        own = self.settings
        classes = self.num_outputs if own.vectors_of == "class" else 1
        most, length = own.vectors * classes, math.prod(self.input_shape)
        settings = {kinds.VECTORS: own.vectors, kinds.VECTORS_OF: own.vectors_of}

        def read(_: str, content: RecordDict) -> Directions:
            return Directions(*read_principal_vectors(content, length, most))

        requests = [
            context.request_custom(PRINCIPAL_VECTORS, client, None, settings, category="query") for client in clients
        ]
        return context.ask(requests, read)

    def distances(self, clients: Sequence[Directions]) -> FloatArray:
        """Return the angles between the clients' vectors."""
        return angle_matrix(clients, self.settings.angle)
