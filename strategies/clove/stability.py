"""CLoVE's memory of assignments, and the clusters that it keeps once they are stable."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import centroids, nearest_centroid


@dataclass(eq=False)
class Histories(Mapping[str, list[int]]):
    """The last `length` assignments of each client, one for each round in which it took part.

    In the paper each client keeps its own. Deviation: the server keeps them and sends each client its own, so that a
    client that restarts loses nothing; the declaration of stability stays the client's.
    """

    length: int
    entries: dict[str, list[int]] = field(default_factory=dict)

    def __getitem__(self, key: str) -> list[int]:
        return self.entries[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, assignment: Mapping[str, int]) -> None:
        """Append this round's assignment of the clients that took part in it."""
        for key, model in assignment.items():
            self.entries[key] = [*self.entries.get(key, []), model][-self.length :]


@dataclass(frozen=True)
class FrozenClusters:
    """The models and the clusters' centroids at the moment of stability.

    Attributes
    ----------
    models
        The K models on which the loss vectors of that round were taken.
    centroids
        Mean loss vector of each cluster, (C, K).
    model_of_cluster
        Model matched to each cluster, (C,).
    """

    models: Models
    centroids: FloatArray
    model_of_cluster: IntArray

    @classmethod
    def of(
        cls, models: Models, vectors: FloatArray, clusters: IntArray, model_of_cluster: IntArray
    ) -> "FrozenClusters":
        """Save the clusters found from `vectors` (M, K)."""
        return cls(models, centroids(vectors, clusters), model_of_cluster)

    def nearest_model(self, losses: FloatArray) -> int:
        """Return the model of the cluster whose centroid is nearest to one loss vector (K,)."""
        return int(self.model_of_cluster[nearest_centroid(np.atleast_2d(losses), self.centroids)[0]])
