"""FINCH: clustering by first neighbours, without parameters."""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from florets.strategies.core import FloatArray, IntArray

# Distances of so many pairs at a time: 32 MB.
_PAIRS = 2**22


def first_partition(rows: FloatArray) -> IntArray:
    """Link each row with its nearest other row, and return the groups of linked rows.

    Parameters
    ----------
    rows : (M, D) float64
        Finite.

    Returns
    -------
    (M,) int64
        Group of each row, numbered from 0 without gaps. Equal rows share one; no row is alone but the only one.

    Source: Sarfraz et al. 2019 (FINCH), Eq. 1, with Euclidean distances. Rows that have the same first neighbour are
    linked there as well: they are joined through it here.
    """
    count = len(rows)
    if count < 2:
        return np.zeros(count, dtype=np.int64)
    links = coo_array((np.ones(count), (np.arange(count), _first_neighbours(rows))), shape=(count, count))
    _, groups = connected_components(links, directed=False)
    numbered: IntArray = groups.astype(np.int64)
    return numbered


def finch(rows: FloatArray, distinct: IntArray, num_clusters: int) -> IntArray:
    """Group the rows into `num_clusters` clusters.

    Partitions follow from one another: the means of one partition's groups are linked by their own first neighbours.
    Of the last that has enough groups the two whose means are nearest are merged, until there are as many as wanted.

    Parameters
    ----------
    rows : (M, D) float64
        Finite.
    distinct : (M,) int64
        Number of each row's value, from 0 without gaps.
    num_clusters : int
        Clusters wanted, from 1 to as many as there are distinct rows.

    Returns
    -------
    (M,) int64
        Cluster of each row, by any `num_clusters` numbers; equal rows share one.

    Source: Sarfraz et al. 2019 (FINCH), Alg. 1 and 2. Deviation: with more clusters wanted than the first partition
    has, the distinct rows are merged two by two; the paper does not say what is done then.
    """
    groups, coarser = distinct, first_partition(rows)
    while num_clusters <= coarser.max() + 1 < groups.max() + 1:
        groups = coarser
        coarser = first_partition(_means(rows, groups))[groups]
    return _merged(rows, groups, num_clusters)


def _first_neighbours(rows: FloatArray) -> IntArray:
    """Return the nearest other row of each, the first among equals (M,); memory does not grow with M squared."""
    count = len(rows)
    step = max(1, _PAIRS // count)
    found = np.empty(count, dtype=np.int64)
    for start in range(0, count, step):
        chunk = np.arange(start, min(start + step, count))
        distances = cdist(rows[chunk], rows)
        distances[np.arange(len(chunk)), chunk] = np.inf
        found[chunk] = distances.argmin(axis=1)
    return found


def _means(rows: FloatArray, groups: IntArray) -> FloatArray:
    """Return the mean of each group's rows (C, D)."""
    sizes = np.bincount(groups)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, groups, rows)
    means: FloatArray = sums / sizes[:, np.newaxis]
    return means


def _merged(rows: FloatArray, groups: IntArray, num_clusters: int) -> IntArray:
    """Return the groups after the two of nearest means were merged, again and again."""
    sizes = np.bincount(groups).astype(np.float64)
    means = _means(rows, groups)
    distances: FloatArray = cdist(means, means)
    np.fill_diagonal(distances, np.inf)
    names = np.arange(len(sizes))
    for _ in range(len(sizes) - num_clusters):
        kept, gone = sorted(divmod(int(distances.argmin()), len(sizes)))
        means[kept] = (sizes[kept] * means[kept] + sizes[gone] * means[gone]) / (sizes[kept] + sizes[gone])
        sizes[kept] += sizes[gone]
        names[names == gone] = kept
        distances[kept] = cdist(means[kept : kept + 1], means)[0]
        # Groups that are gone, and a group's distance from itself, are never the least.
        distances[kept, np.isinf(distances[gone])] = np.inf
        distances[kept, [kept, gone]] = np.inf
        distances[gone], distances[:, gone] = np.inf, np.inf
        distances[:, kept] = distances[kept]
    merged: IntArray = names[groups]
    return merged
