"""Agglomerative clustering of clients by their distances: cuts of the tree, whose model a merged cluster takes."""

from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut


class Grouping(NamedTuple):
    """Clusters (M,), numbered from 0 in order of first appearance, and the distance below which they were merged."""

    clusters: IntArray
    threshold: float


def merge_tree(distances: FloatArray, method: str) -> FloatArray:
    """Merge the two nearest clusters again and again; return SciPy's linkage matrix (M - 1, 4).

    `method` is SciPy's name: "weighted" is WPGMA, the plain mean of the two merged rows, which some code calls
    average.
    """
    if len(distances) == 1:
        return np.zeros((0, 4))
    tree: FloatArray = linkage(squareform(distances, checks=False), method=method)
    return tree


def group_below(distances: FloatArray, threshold: float, method: str) -> Grouping:
    """Merge clusters as long as the two nearest are nearer than `threshold`; 0 leaves even equal clients alone."""
    tree = merge_tree(distances, method)
    merges = int(np.sum(tree[:, 2] < threshold))
    return Grouping(canonical(cut(tree, len(distances) - merges)), threshold)


def group_into(distances: FloatArray, num_clusters: int, method: str) -> Grouping:
    """Merge clusters until `num_clusters`, of at most M, are left.

    The threshold is half-way between the last merge that was made and the first that was not.
    """
    tree = merge_tree(distances, method)
    heights = np.concatenate([[0.0], tree[:, 2], [np.inf]])
    last = len(distances) - num_clusters
    return Grouping(canonical(cut(tree, num_clusters)), float((heights[last] + heights[last + 1]) / 2))


def group_by_largest_gap(distances: FloatArray, method: str, least_ratio: float = 1.0) -> Grouping:
    """Cut where the distance of one merge exceeds that of the merge before it by most.

    One client, or clients whose merges all have one distance, are one cluster; else there are 2 to max(2, M - 1).
    Of equal gaps the one with the fewest clusters is taken. Where the distance above the gap is below `least_ratio`
    times the one under it, nothing parts the clients, and they are one cluster, too.
    """
    heights = merge_tree(distances, method)[:, 2]
    if len(heights) == 0 or heights[-1] == heights[0]:
        alone = len(heights) == 1 and heights[0] > 0
        return group_into(distances, 2 if alone else 1, method)
    gaps = np.diff(heights)[::-1]
    best = int(np.argmax(gaps))
    clear = heights[-1 - best] >= least_ratio * heights[-2 - best]
    return group_into(distances, 2 + best if clear else 1, method)


def joined(looked_at: IntArray, merged: IntArray, sizes: IntArray, num_trained: int) -> tuple[IntArray, IntArray]:
    """Return the new number (C,) of each cluster, and the cluster (C',) whose model each new one takes.

    `looked_at` (L,) are the clusters that could merge, rising, `merged` (L,) the group of each, `sizes` (C,) the
    clients of all clusters. Clusters below `num_trained` have a model of their own: of those that merged the one with
    the most clients hands it down, the lowest number among equals.
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
