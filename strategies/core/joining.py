"""Numbers of clusters after some of them merged, and whose model each takes."""

import numpy as np

from florets.strategies.core import IntArray
from florets.strategies.core.cluster import canonical


def joined(looked_at: IntArray, merged: IntArray, sizes: IntArray, num_trained: int) -> tuple[IntArray, IntArray]:
    """Return the new number of each cluster, and the cluster that hands its model down to each new one.

    Parameters
    ----------
    looked_at : (L,) int64
        Clusters that could merge, rising.
    merged : (L,) int64
        Group of each of these.
    sizes : (C,) int64
        Clients of each of all clusters.
    num_trained : int
        Clusters below this number have a model of their own.

    Returns
    -------
    clusters : (C,) int64
        New numbers, in the order of the lowest old one.
    heirs : (C',) int64
        Of the clusters that merged the one with a model that has the most clients, the lowest number among equals;
        the lowest number where none has a model.
    """
    groups = np.arange(len(sizes))
    for group in np.unique(merged):
        members = looked_at[merged == group]
        groups[members] = members[0]
    clusters = canonical(groups)
    # Sorted by group, then by having a model, then by size, then by number: the first of each group inherits.
    numbers = np.arange(len(sizes))
    order = np.lexsort((numbers, -sizes, numbers >= num_trained, clusters))
    _, first = np.unique(clusters[order], return_index=True)
    return clusters, order[first]
