"""Distances of the layers that clients trained alone."""

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray


def euclidean(vectors: Sequence[FloatArray]) -> FloatArray:
    """Return the Euclidean distances (M, M) of M vectors.

    Source: Islam et al. 2024 (FedClust), the proximity matrix.
    """
    distances: FloatArray = squareform(pdist(np.stack(vectors)))
    return distances
