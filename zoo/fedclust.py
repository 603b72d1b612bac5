"""FedClust: clients are grouped once, by the last layer of models that they trained alone, then FedAvg in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import pdist, squareform

from florets import Round
from florets.strategies.base.exchange import Replies
from florets.strategies.base.report import Client
from florets.strategies.core import FloatArray
from florets.strategies.shared.estimates import ask_estimates, last_layer, sent_layout, usual_size
from florets.zoo.shared.linked_groups import LinkedClusters, LinkedSettings


@dataclass(frozen=True)
class FedClustSettings(LinkedSettings):
    """Clients train alone once and send the last layer; the server groups them by it, then FedAvg in each group."""

    freezes: ClassVar[bool] = True
    asks: ClassVar[frozenset[str]] = frozenset({"descriptors"})

    linkage: ClassVar[str] = "average"


class FedClust(LinkedClusters[FedClustSettings]):
    """Cluster the clients once, by the last layer that each trained alone from one first model.

    What goes up for it is that layer alone, a few kB. Agglomerative clustering groups the clients by the Euclidean
    distances of these layers, and each group trains a model by federated averaging, all from the same first model.

    Source: Islam et al. 2024 (FedClust): one-shot clustering of the weights of the final layer by their Euclidean
    distances, hierarchically with a threshold, FedAvg in each cluster, newcomers alike. Deviation: the threshold
    depends on the task, so that the default cuts the tree at its largest gap; clusters are merged below the threshold
    and not at it; who has a model keeps it when newcomers change the tree. Average linkage is our choice.
    """

    Settings = FedClustSettings

    def describe(self, clients: Sequence[Client], r: Round) -> Replies[FloatArray]:
        """Ask for the last layer of the model that each client trained alone: its trainable parameters, flat."""
        start = self.state.reference or r.models
        layers = [last_layer(start)]
        known = usual_size(self.state.descriptions.values())
        replies = ask_estimates(clients, r, start, layers=layers, known=known)
        compared = sent_layout(start, layers).trained
        return replies.of({key: update.vector[compared] for key, update in replies.ok})

    def distances(self, clients: Sequence[FloatArray]) -> FloatArray:
        """Return the Euclidean distances of the clients' layers."""
        distances: FloatArray = squareform(pdist(np.stack(clients)))
        return distances
