"""Group the anchors by their estimates, and average each group."""

import math

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.ward import cut


def num_anchors(num_clusters: int) -> int:
    """Return ceil(3 k ln k), and at least k: so many clients drawn at random miss a cluster rarely.

    Source: mixed regression, Sec. V. Deviation: the formula gives none for k = 1.
    """
    return max(num_clusters, math.ceil(3 * num_clusters * math.log(num_clusters)))


def group_exactly(estimates: FloatArray, num_groups: int) -> IntArray:
    """Group estimates (A, R) into exactly `num_groups` by average linkage; numbered by first appearance.

    Deviation: the paper joins anchors closer than Delta/2, see `group_within`. On its own settings both give the same
    groups, and this rule needs no Delta.
    """
    if len(estimates) == 1:
        return np.zeros(1, dtype=np.int64)
    return canonical(cut(linkage(pdist(estimates), method="average"), num_groups))


def group_within(estimates: FloatArray, distance: float) -> IntArray:
    """Group estimates (A, R): those nearer than `distance` to each other, directly or through others, are one group.

    Source: mixed regression, Phase 1, l. 16, with `distance` = Delta/2.
    """
    near = squareform(pdist(estimates)) < distance
    return canonical(connected_components(near, directed=False)[1].astype(np.int64))


def largest_groups(groups: IntArray, num_groups: int) -> IntArray:
    """Keep the `num_groups` largest groups, numbered by first appearance; anchors of the others get -1.

    Of groups of one size those that appear first are kept.
    """
    kept = np.argsort(-np.bincount(groups), kind="stable")[:num_groups]
    left_out = ~np.isin(groups, kept)
    result = np.full(len(groups), -1, dtype=np.int64)
    result[~left_out] = canonical(groups[~left_out])
    return result


def centres(estimates: FloatArray, groups: IntArray, bank: FloatArray) -> FloatArray:
    """Return the models (K, R): the mean of each group's estimates; a model without a group is that of `bank`.

    Parameters
    ----------
    estimates : (A, R) float64
    groups : (A,) int64
        Model of each anchor, -1 for none.
    bank : (K, R) float64
        Not modified.
    """
    result = np.array(bank, dtype=np.float64)
    for group in range(len(bank)):
        members = estimates[groups == group]
        if len(members):
            result[group] = members.mean(axis=0)
    return result
