"""Groups as a run froze them, and the placement of clients that come later."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.outliers import clipped
from florets.strategies.core.placement import Centres, place
from florets.task.wire.folds import RowForm

FIT, FIT_ONE = 0.5, 0.1
"""Share of a group's usual cosine below which the group does not fit a client; the one row of a client with few
samples is noisier."""


UNLABELLED = 2
"""Rows of a descriptor that need no labels: mean and spread of all samples. They come first."""


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


@dataclass(frozen=True)
class RowScale:
    """Minimum and range of each row of the descriptors that it was made from.

    Attributes
    ----------
    low, width
        (B,) over all clients and all entries of a row.
    """

    low: FloatArray
    width: FloatArray

    @classmethod
    def of(cls, descriptors: FloatArray) -> "RowScale":
        """Return the scale of descriptors (M, B, l)."""
        low, high = descriptors.min(axis=(0, 2)), descriptors.max(axis=(0, 2))
        return cls(low, high - low)

    def apply(self, descriptors: FloatArray) -> FloatArray:
        """Return descriptors (..., B, l) with row b as (value - low_b) / width_b; 0 where the row had one value.

        Source: Fenoglio et al. 2025 (FLUX): every statistic is brought to [0, 1] on its own, so that all weigh alike.
        """
        moved = descriptors - self.low[:, np.newaxis]
        same = self.width[:, np.newaxis] == 0
        scaled: FloatArray = np.where(same, 0.0, moved / np.where(same, 1.0, self.width[:, np.newaxis]))
        return scaled


def nearest(descriptor: FloatArray, centroids: FloatArray, labelled: bool = True) -> int:
    """Return the index of the nearest centroid in Euclidean distance, the lowest among equals.

    Parameters
    ----------
    descriptor : (B, l) float64
        Scaled.
    centroids : (C, B, l) float64
        Mean scaled descriptor of each cluster.
    labelled : bool
        False: only the rows that need no labels are compared.
    """
    rows = slice(None) if labelled else slice(UNLABELLED)
    gaps = centroids[:, rows] - descriptor[np.newaxis, rows]
    return int(np.argmin((gaps**2).sum(axis=(1, 2))))


@dataclass(frozen=True)
class FrozenDescriptors:
    """The common model, how features are projected, and the groups' centroids. Group g trains model g.

    Attributes
    ----------
    common
        The one model whose features are described.
    seed
        Draws the projection.
    scale
        Brings the rows of descriptors to a common scale.
    centroids
        Mean scaled descriptor of each group, (K, 2 (C + 1), l).
    """

    common: Models
    seed: int
    scale: RowScale
    centroids: FloatArray

    def group_of(self, descriptor: FloatArray, labelled: bool = True) -> int:
        """Return the group of a client with this descriptor (2 (C + 1), l); without labels two rows decide."""
        return nearest(self.scale.apply(descriptor), self.centroids, labelled)


@dataclass(frozen=True)
class FrozenGroups:
    """The common model, how clients train it, and the groups' centres. Group g trains model g.

    Attributes
    ----------
    common
        The one model that all rows come from.
    folds, size, steps, rate
        Of a client's data, and of the training on them; a client with too few samples trains once, on all of them.
    form, seed
        How rows are compressed, and the draws of that.
    centres
        See `florets.strategies.base.placement`.
    """

    common: Models
    folds: int
    size: int
    steps: int
    rate: float
    form: RowForm
    seed: int
    centres: Centres

    def folds_of(self, num_examples: int) -> int:
        """Return how many folds a client with so many samples has."""
        return self.folds if num_examples >= self.folds * self.size else 1

    def group_of(self, rows: NDArray[np.floating]) -> tuple[int, float]:
        """Return the group of a client that sent these rows (m, width), -1 where none fits, and the cosine."""
        return place(rows.astype(np.float64), self.centres, FIT_ONE if len(rows) == 1 else FIT)

    def group_in_a_run(self, rows: NDArray[np.floating]) -> tuple[int, float]:
        """Return the same for a client that takes part in training: one with few samples joins the nearest group.

        Its one row is too noisy to leave it without a model.
        """
        return place(rows.astype(np.float64), self.centres, None if len(rows) == 1 else FIT)


@dataclass(frozen=True)
class ClassShares:
    """P_k(y).

    Attributes
    ----------
    shares
        (K, C), above 0; each row sums to 1.
    """

    shares: FloatArray
