"""Distances of clients and clusters by how well the models of each do on the data of the other."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.agglomerative import Grouping, group_by_largest_gap, group_into, merge_tree
from florets.strategies.core.finite import finite_losses

_FLOOR = 1e-3


def mutual(losses: FloatArray) -> FloatArray:
    """Return the mean of both cross losses of any two.

    Parameters
    ----------
    losses : (M, M) float
        Row i: the losses of everybody's model on i's data; see `finite.finite_losses` for NaN.

    Returns
    -------
    (M, M) float64
        Symmetric; the diagonal is 0 whatever the own losses are.

    Source: Vardhan et al. 2024 (SR-FCA), the cross-loss distance of two clients.
    """
    clean = finite_losses(losses)
    distances = (clean + clean.T) / 2
    np.fill_diagonal(distances, 0.0)
    return distances


def group_by_largest_ratio(distances: FloatArray, smallest: int = 1) -> Grouping:
    """Cut single linkage where the distance of one merge is the largest multiple of that of the merge before.

    A factor and not a difference: of groups that are all unlike each other some are more so, and losses on them may
    lie further from one another than from those within a group. Distances below a thousandth of the largest count
    alike.

    Parameters
    ----------
    distances : (M, M) float64
        See `mutual`.
    smallest : int
        Clients that two of the clusters must have, see `group_by_largest_gap`.
    """
    floor = _FLOOR * float(distances.max(initial=0.0))
    if floor == 0.0:
        return group_into(distances, 1, "single")
    # Single linkage asks for the order of distances alone, so that it makes the same tree of their logarithms.
    found = group_by_largest_gap(np.log(np.maximum(distances, floor) / floor), "single", smallest)
    return Grouping(found.clusters, floor * float(np.exp(found.threshold)))


def farthest_neighbours(distances: FloatArray, grouping: Grouping) -> float:
    """Return the largest distance at which single linkage merged two of the groups (M, M); 0 where it merged none."""
    heights = merge_tree(distances, "single")[:, 2]
    return float(heights[heights < grouping.threshold].max(initial=0.0))


def by_cluster(rows: FloatArray, clusters: IntArray, num_clusters: int) -> FloatArray:
    """Return the mean of the rows (M, D) of each cluster's clients (C, D); NaN for a cluster without any."""
    sums, sizes = np.zeros((num_clusters, rows.shape[1])), np.bincount(clusters, minlength=num_clusters)
    np.add.at(sums, clusters, rows)
    means: FloatArray = np.divide(
        sums, sizes[:, np.newaxis], out=np.full_like(sums, np.nan), where=sizes[:, np.newaxis] > 0
    )
    return means


def distances_to_clusters(losses: FloatArray, cross: FloatArray) -> FloatArray:
    """Return the distance of each client to each cluster.

    Parameters
    ----------
    losses : (M, C) float
        Loss of each cluster's model on each client's data.
    cross : (M, C) float
        Mean loss of each client's own model on the data of each cluster's clients; NaN where that is not known.

    Returns
    -------
    (M, C) float64
        The mean of both; the first alone where the second is not known.

    Source: Vardhan et al. 2024 (SR-FCA), RECLUSTER. Deviation: what is not known is left out.
    """
    clean = finite_losses(losses)
    known = np.isfinite(cross)
    distances: FloatArray = np.where(known, (clean + np.where(known, cross, 0.0)) / 2, clean)
    return distances


def nearest_of_large(distances: FloatArray, least_size: int) -> IntArray:
    """Return the nearest cluster of each client (M,), after those with too few clients are dissolved.

    Who was in one of these goes to the nearest of the others. Where no cluster is large enough all stay.

    Parameters
    ----------
    distances : (M, C) float64
    least_size : int
    """
    nearest: IntArray = distances.argmin(axis=1)
    large = np.bincount(nearest, minlength=distances.shape[1]) >= least_size
    if not large.any():
        return nearest
    allowed: IntArray = np.where(large, distances, np.inf).argmin(axis=1)
    return allowed
