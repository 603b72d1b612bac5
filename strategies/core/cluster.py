"""Group clients by their loss vectors."""

import warnings

import numpy as np
from scipy.spatial.distance import cdist

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.finch import finch
from florets.strategies.core.finite import finite_losses
from florets.strategies.core.threads import one_thread
from florets.strategies.core.ward import cut, ward_tree

METHODS = ("kmeans", "agglomerative", "finch")

# Ward's tree takes 4 M^2 bytes and time in M^2: of more rows than this a cohort of as many is merged (100 MB).
MOST_MERGED = 5000


def cluster(
    vectors: FloatArray,
    num_clusters: int,
    method: str,
    rng: np.random.Generator,
    weights: FloatArray | None = None,
) -> IntArray:
    """Group the rows into clusters.

    Rows that are equal always share a cluster. With as many clusters asked for as there are distinct rows,
    or more, each distinct row is a cluster of its own: fewer clusters than asked for are found then, never
    an empty one, and never a warning. No rows give no clusters.

    Parameters
    ----------
    vectors : (M, D) float64
        Loss vectors, one row a client, rows in the order of client keys; see `finite.finite_losses` for NaN.
    num_clusters : int
        Clusters wanted, at least 1.
    method : str
        ``"kmeans"`` (k-means++, the best of ten starts), ``"agglomerative"`` (Ward; of more than 5,000 rows
        `of_cohort`, with 5,000 of them) or ``"finch"`` (first neighbours; see `finch.finch`).
    rng : numpy.random.Generator
        Seeds k-means and draws the cohort; not used otherwise.
    weights : (M,) float64, optional
        How much each row counts in k-means, above 0; not used otherwise.

    Returns
    -------
    (M,) int64
        Cluster of each row, numbered from 0 in order of first appearance.

    Raises
    ------
    ValueError
        If `num_clusters` is below 1 or `method` is unknown.

    Source: CLoVE Alg. 1, line 11; its released code has all three methods.
    Deviation: ten starts of k-means instead of one (the published code's choice), because one start
    sometimes ends in a poor local optimum and the clustering of a few hundred short vectors costs
    milliseconds.
    """
    if num_clusters < 1:
        raise ValueError(f"num_clusters is {num_clusters}: it must be at least 1.")
    if method not in METHODS:
        raise ValueError(f"clustering method {method!r} is unknown: choose one of {', '.join(METHODS)}.")
    rows = finite_losses(vectors)
    if len(rows) == 0:
        return np.zeros(0, dtype=np.int64)
    own = distinct_rows(rows)
    if num_clusters > own.max():
        return own
    if method == "agglomerative":
        if len(rows) <= MOST_MERGED:
            return ward(rows, num_clusters)
        return of_cohort(rows, num_clusters, MOST_MERGED, rng)
    if method == "finch":
        return canonical(finch(rows, own, num_clusters))
    return canonical(_kmeans(rows, num_clusters, int(rng.integers(2**31 - 1)), weights))


def ward(rows: FloatArray, num_clusters: int) -> IntArray:
    """Return Ward's clusters of finite rows (M, D), numbered as `cluster` numbers them."""
    return canonical(cut(ward_tree(rows), num_clusters))


def of_cohort(rows: FloatArray, num_clusters: int, size: int, rng: np.random.Generator) -> IntArray:
    """Group a cohort of the rows by Ward's method, and place every row, those of the cohort too, by nearest centroid.

    A cluster with a share p of the rows is missed with probability below (1 - p) to the power of `size`.

    Parameters
    ----------
    rows : (M, D) float64
        Finite.
    num_clusters : int
        Clusters wanted; of a cohort of fewer different rows fewer are found.
    size : int
        Rows of the cohort, at most M.
    rng : numpy.random.Generator
        Draws it, without replacement.

    Returns
    -------
    (M,) int64
        Cluster of each row, numbered from 0 in order of first appearance; equal rows share one.

    Deviation: the published methods merge all clients, whose pairs do not fit into memory here.
    """
    cohort = rows[np.sort(rng.choice(len(rows), size=size, replace=False))]
    own = distinct_rows(cohort)
    clusters = own if num_clusters > own.max() else ward(cohort, num_clusters)
    return canonical(nearest_centroid(rows, centroids(cohort, clusters)))


def canonical(labels: IntArray) -> IntArray:
    """Return the same grouping with its groups numbered from 0 in order of first appearance.

    Parameters
    ----------
    labels : (M,) int
        Any integers, equal within a group.

    Returns
    -------
    (M,) int64
        The grouping's one canonical form: two equal groupings have equal arrays.
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def distinct_rows(vectors: FloatArray) -> IntArray:
    """Return for each row (M, D) the number of its value (M,), from 0 in order of first appearance."""
    _, inverse = np.unique(vectors, axis=0, return_inverse=True)
    return canonical(inverse.reshape(-1).astype(np.int64))


def centroids(vectors: FloatArray, clusters: IntArray) -> FloatArray:
    """Return the mean loss vector of each cluster.

    Parameters
    ----------
    vectors : (M, D) float64
    clusters : (M,) int64
        Numbered from 0 without gaps.

    Returns
    -------
    (C, D) float64
        Row c is the mean over the members of cluster c, summed in row order.
    """
    rows = finite_losses(vectors)
    sizes = np.bincount(clusters)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, clusters, rows)
    means: FloatArray = sums / sizes[:, np.newaxis]
    return means


def nearest_centroid(vectors: FloatArray, centroids: FloatArray) -> IntArray:
    """Return the cluster whose centroid is nearest to each vector.

    Parameters
    ----------
    vectors : (M, D) float64
        Loss vectors of clients that were not there when the clusters were found.
    centroids : (C, D) float64
        At least one, from `centroids`.

    Returns
    -------
    (M,) int64
        Index of the nearest centroid in Euclidean distance; the lowest index among equals.

    Source: CLoVE Alg. 1, line 16 and the passage on clients that arrive after stability.
    """
    distances: FloatArray = cdist(finite_losses(vectors), centroids)
    nearest: IntArray = np.argmin(distances, axis=1).astype(np.int64)
    return nearest


def _kmeans(rows: FloatArray, num_clusters: int, seed: int, weights: FloatArray | None) -> IntArray:
    # Here, for its import takes a second, and most strategies never come here. Before the limit on threads.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(n_clusters=num_clusters, init="k-means++", n_init=10, random_state=seed)
    # k-means adds up chunks of 256 rows in the order in which its threads finish: with one thread, equal
    # seeds give equal sums to the last bit.
    with one_thread(), warnings.catch_warnings():
        # Rows that differ only in their last bits can fall together when k-means centres them: fewer
        # clusters then come out, which is this module's documented outcome for rows that cannot be told
        # apart.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: IntArray = model.fit_predict(rows, sample_weight=weights).astype(np.int64)
    return labels
