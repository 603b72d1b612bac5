"""Hierarchical clustering of a matrix of distances."""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.ward import cut

METHODS = ("single", "complete", "average", "weighted")


def link(distances: FloatArray, num_clusters: int, method: str) -> IntArray:
    """Merge the nearest clusters, from each row alone, until a number of clusters is left.

    Parameters
    ----------
    distances : (M, M) float64
        Symmetric, not negative, finite; the diagonal is not looked at. M may be 0.
    num_clusters : int
        At least 1; with fewer rows each is a cluster of its own.
    method : str
        Distance of two clusters: that of their nearest members (``"single"``), of their farthest (``"complete"``),
        the mean over pairs of members (``"average"``, UPGMA), or the mean of the distances of the two clusters that
        were merged last (``"weighted"``, WPGMA).

    Returns
    -------
    (M,) int64
        Cluster of each row, numbered from 0 in order of first appearance.

    Raises
    ------
    ValueError
        If `num_clusters` is below 1 or `method` is unknown.
    """
    if num_clusters < 1:
        raise ValueError(f"num_clusters is {num_clusters}: it must be at least 1.")
    if method not in METHODS:
        raise ValueError(f"linkage {method!r} is unknown: choose one of {', '.join(METHODS)}.")
    if len(distances) <= num_clusters:
        return np.arange(len(distances), dtype=np.int64)
    # Of the two triangles, which may differ in the last bit, the upper one counts.
    upper = np.triu(distances, 1)
    return canonical(cut(linkage(squareform(upper + upper.T), method=method), num_clusters))
