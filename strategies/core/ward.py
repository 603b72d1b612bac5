"""Ward's tree of loss vectors: computed once, cut at every number of clusters that is asked for."""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import pdist

from florets.strategies.core import FloatArray, IntArray


def ward_tree(vectors: FloatArray) -> FloatArray:
    """Return the merges of Ward's method on Euclidean distances.

    Parameters
    ----------
    vectors : (M, D) float64
        At least two rows. Memory grows as M squared.

    Returns
    -------
    (M - 1, 4) float64
        SciPy's linkage matrix: the two nodes merged, their distance, the size of the union.
    """
    # Given rows, SciPy warns where they happen to look like a matrix of distances, as K vectors of length K can.
    tree: FloatArray = linkage(pdist(vectors), method="ward")
    return tree


def cut(tree: FloatArray, num_clusters: int) -> IntArray:
    """Return the clusters after all but the last ``num_clusters - 1`` merges.

    Exactly ``num_clusters`` clusters come out, also where several merges have equal distances: a cut at a
    distance (SciPy's ``fcluster``) would return fewer there.

    Parameters
    ----------
    tree : (M - 1, 4) float64
        From `ward_tree`.
    num_clusters : int
        From 1 to M.

    Returns
    -------
    (M,) int64
        A number for each row, equal within a cluster; not yet numbered from 0 (see `cluster.canonical`).
    """
    num_rows = len(tree) + 1
    num_nodes = 2 * num_rows - num_clusters
    root = np.arange(num_nodes, dtype=np.int64)
    # A node is made before it is merged: from the last merge down, every parent's root is known already.
    for node in range(num_nodes - 1, num_rows - 1, -1):
        left, right = tree[node - num_rows, :2].astype(np.int64)
        root[left] = root[right] = root[node]
    return root[:num_rows]


def within_sums(tree: FloatArray) -> FloatArray:
    """Return the within-cluster sum of squares of every cut of the tree.

    Parameters
    ----------
    tree : (M - 1, 4) float64
        From `ward_tree`.

    Returns
    -------
    (M,) float64
        Entry ``K - 1`` belongs to K clusters: falling, 0 at the end. A merge at Ward distance h adds h
        squared / 2.
    """
    growth = np.cumsum(tree[:, 2] ** 2 / 2.0)
    sums: FloatArray = np.concatenate([growth[::-1], [0.0]])
    return sums
