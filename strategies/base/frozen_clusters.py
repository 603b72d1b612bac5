"""`FrozenClusters`: clusters of loss vectors that no longer change, by which new clients are assigned."""

import math
from dataclasses import dataclass

import numpy as np

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import clipped


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
    square_root
        The vectors are the square roots of the losses.
    limit
        What the vectors were clipped to; infinity where they were not.
    """

    models: Models
    centroids: FloatArray
    model_of_cluster: IntArray
    square_root: bool = False
    limit: float = math.inf

    @classmethod
    def of(
        cls,
        models: Models,
        vectors: FloatArray,
        clusters: IntArray,
        model_of_cluster: IntArray,
        square_root: bool = False,
        limit: float = math.inf,
    ) -> "FrozenClusters":
        """Save the clusters found from `vectors` (M, K)."""
        # SciPy is for the server: a node that imports a strategy of its author's for a handler may lack it.
        from florets.strategies.core.cluster import centroids

        return cls(models, centroids(vectors, clusters), model_of_cluster, square_root, limit)

    def nearest_model(self, losses: FloatArray) -> int:
        """Return the model of the cluster whose centroid is nearest to one loss vector (K,)."""
        from florets.strategies.core.cluster import nearest_centroid

        vector = np.sqrt(np.maximum(losses, 0.0)) if self.square_root else losses
        nearest = nearest_centroid(clipped(np.atleast_2d(vector), self.limit), self.centroids)[0]
        return int(self.model_of_cluster[nearest])
