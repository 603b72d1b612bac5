"""Clusters of the clients' vectors: k-means, Ward, FINCH; their centroids, numbering and match to models."""

import sys
from functools import cache

import numpy as np
import scipy.linalg  # noqa: F401
from scipy.cluster.hierarchy import linkage
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist, pdist
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it ships no types

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.kmeans import kmeans

# Imported for what it loads: a controller knows the libraries that are there when it is made.


@cache
def _controller(with_sklearn: bool) -> ThreadpoolController:
    # Searching the loaded libraries takes milliseconds: once is enough, and once more for the OpenMP that comes with
    # scikit-learn, which is imported only where it is used because that takes a second.
    return ThreadpoolController()


def one_thread() -> ThreadpoolController:
    """Return a context in which BLAS and OpenMP work with one thread: of the libraries that are loaded by now."""
    return _controller("sklearn.utils" in sys.modules).limit(limits=1)


def finite_losses(losses: FloatArray) -> FloatArray:
    """Return losses (M, K) with NaN and infinity replaced by the largest finite loss, or 0.

    A model that diverged gives NaN to all clients; its column then becomes constant, tells no clients apart, and is
    as unattractive as the worst loss that was seen. Negative zeros become zeros.
    """
    # Adding 0.0 turns -0.0 into 0.0, which is otherwise another row to a bytewise comparison.
    clean: FloatArray = np.array(losses, dtype=np.float64) + 0.0
    bad = ~np.isfinite(clean)
    if bad.any():
        good = clean[~bad]
        clean[bad] = good.max() if good.size else 0.0
    return clean


# Distances of so many pairs at a time: 32 MB.
_PAIRS = 2**22


def first_partition(rows: FloatArray) -> IntArray:
    """Link each finite row (M, D) with its nearest other row; return the groups (M,) of linked rows.

    Equal rows share a group; no row is alone but the only one.

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
    """Group finite rows (M, D) into `num_clusters` clusters (M,); rows of one number in `distinct` share one.

    Partitions follow from one another: the means of one partition's groups are linked by their own first neighbours.
    Of the last that has enough groups the two whose means are nearest are merged, until there are as many as wanted.

    Source: Sarfraz et al. 2019 (FINCH), Alg. 1 and 2. Deviation: with more clusters wanted than the first partition
    has, the distinct rows are merged two by two; the paper does not say what is done then.
    """
    groups, coarser = distinct, first_partition(rows)
    while num_clusters <= coarser.max() + 1 < groups.max() + 1:
        groups = coarser
        coarser = first_partition(group_means(rows, groups))[groups]
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


def group_means(rows: FloatArray, groups: IntArray, count: int = 0) -> FloatArray:
    """Return the mean of each group's rows (C, D), C at least `count`; NaN for a group without any."""
    sizes = np.bincount(groups, minlength=count)[:, np.newaxis]
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, groups, rows)
    means: FloatArray = np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)
    return means


def _merged(rows: FloatArray, groups: IntArray, num_clusters: int) -> IntArray:
    """Return the groups after the two of nearest means were merged, again and again."""
    sizes = np.bincount(groups).astype(np.float64)
    means = group_means(rows, groups)
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


# Ward's tree takes 4 M^2 bytes and time in M^2: of more rows than this a cohort of as many is merged (100 MB).
MOST_MERGED = 5000


def cluster(
    vectors: FloatArray,
    num_clusters: int,
    method: str,
    rng: np.random.Generator,
    weights: FloatArray | None = None,
) -> IntArray:
    """Return the cluster of each loss vector (M, D), numbered from 0 in order of first appearance.

    Rows that are equal always share a cluster. With as many clusters asked for as there are distinct rows, or more,
    each distinct row is a cluster of its own; no rows give no clusters.

    Parameters
    ----------
    method : str
        ``"kmeans"`` (k-means++, the best of ten starts), ``"agglomerative"`` (Ward; of more than 5,000 rows
        `of_cohort`, with 5,000 of them) or ``"finch"`` (first neighbours; see `finch`).
    rng : numpy.random.Generator
        Seeds k-means and draws the cohort.
    weights : (M,) float64, optional
        How much each row counts in k-means, above 0.

    Source: CLoVE Alg. 1, line 11; its released code has all three methods.
    Deviation: ten starts of k-means instead of one (the published code's choice), because one start sometimes ends in
    a poor local optimum and the clustering of a few hundred short vectors costs milliseconds.
    """
    if num_clusters < 1:
        raise ValueError(f"num_clusters is {num_clusters}: it must be at least 1.")
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
    # Sums depend on the number of threads in their last bits.
    with one_thread():
        return canonical(kmeans(rows, num_clusters, int(rng.integers(2**31 - 1)), weights))


def ward(rows: FloatArray, num_clusters: int) -> IntArray:
    """Return Ward's clusters of finite rows (M, D), numbered as `cluster` numbers them."""
    return canonical(cut(ward_tree(rows), num_clusters))


def of_cohort(rows: FloatArray, num_clusters: int, size: int, rng: np.random.Generator) -> IntArray:
    """Group `size` random rows by Ward's method, and place every row by its nearest centroid.

    A cluster with a share p of the rows is missed with probability below (1 - p) to the power of `size`.

    Deviation: the published methods merge all clients, whose pairs do not fit into memory here.
    """
    cohort = rows[np.sort(rng.choice(len(rows), size=size, replace=False))]
    own = distinct_rows(cohort)
    clusters = own if num_clusters > own.max() else ward(cohort, num_clusters)
    return canonical(nearest_centroid(rows, centroids(cohort, clusters)))


def check_clusters(clusters: IntArray, count: int, source: str) -> None:
    """Raise ValueError where clusters are not those of `count` clients, numbered from 0 without a gap."""
    if clusters.shape != (count,) or set(clusters.tolist()) != set(range(int(clusters.max()) + 1)):
        raise ValueError(
            f"{source} returned {clusters!r}: give each of {count} clients a cluster, numbered from 0 without a gap"
        )


def canonical(labels: IntArray) -> IntArray:
    """Return the same grouping (M,) with its groups numbered from 0 in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)]


def distinct_rows(vectors: FloatArray) -> IntArray:
    """Return for each row (M, D) the number of its value (M,), from 0 in order of first appearance."""
    _, inverse = np.unique(vectors, axis=0, return_inverse=True)
    return canonical(inverse.reshape(-1).astype(np.int64))


def centroids(vectors: FloatArray, clusters: IntArray) -> FloatArray:
    """Return the mean loss vector (C, D) of each cluster, summed in row order."""
    return group_means(finite_losses(vectors), clusters)


def nearest_centroid(vectors: FloatArray, centroids: FloatArray) -> IntArray:
    """Return the nearest centroid (C, D) of each vector (M, D); the lowest among equals.

    Source: CLoVE Alg. 1, line 16 and the passage on clients that arrive after stability.
    """
    distances: FloatArray = cdist(finite_losses(vectors), centroids)
    nearest: IntArray = np.argmin(distances, axis=1).astype(np.int64)
    return nearest


def ward_tree(vectors: FloatArray) -> FloatArray:
    """Return the merges of Ward's method on at least two rows (M, D): SciPy's linkage matrix (M - 1, 4)."""
    # Given rows, SciPy warns where they happen to look like a matrix of distances, as K vectors of length K can.
    tree: FloatArray = linkage(pdist(vectors), method="ward")
    return tree


def cut(tree: FloatArray, num_clusters: int) -> IntArray:
    """Return the clusters (M,) after all but the last ``num_clusters - 1`` merges, not yet numbered from 0.

    Exactly `num_clusters` clusters come out, also where several merges have equal distances: a cut at a distance
    (SciPy's ``fcluster``) would return fewer there.
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
    """Return the within-cluster sum of squares (M,) of every cut of Ward's tree: entry ``K - 1`` of K clusters.

    A merge at Ward distance h adds h squared / 2.
    """
    growth = np.cumsum(tree[:, 2] ** 2 / 2.0)
    sums: FloatArray = np.concatenate([growth[::-1], [0.0]])
    return sums


def summed_losses(losses: FloatArray, clusters: IntArray) -> FloatArray:
    """Return the cost (C, K) of each cluster on each model: the sum of its members' losses, in row order.

    Source: CLoVE Alg. 1, line 12 (edge weights of the bipartite graph).
    """
    costs = np.zeros((_count(clusters), losses.shape[1]))
    np.add.at(costs, clusters, finite_losses(losses))
    return costs


def match_min_cost(losses: FloatArray, clusters: IntArray) -> IntArray:
    """Give each cluster a model of its own (C,) such that the sum of all losses (M, K) is least.

    With fewer clusters than models some models stay unmatched; more are refused (ValueError). Equal inputs give equal
    outputs, ties included.

    Source: CLoVE Alg. 1, line 12.
    """
    costs = summed_losses(losses, clusters)
    _check(len(costs), losses.shape[1])
    _, models = linear_sum_assignment(costs)
    return np.asarray(models, dtype=np.int64)


def match_overlap(clusters: IntArray, previous: IntArray, num_models: int) -> IntArray:
    """Give each cluster a model of its own (C,) such that the most clients keep their `previous` one (M,).

    Raises ValueError if there are more clusters than models. Equal inputs give equal outputs, ties included.

    Source: CFL-GP, Sec. 3, spectral clustering, step (c); an option of the published CLoVE code that it never
    implemented.
    """
    num_clusters = _count(clusters)
    _check(num_clusters, num_models)
    overlap = np.zeros((num_clusters, num_models))
    known = previous >= 0
    np.add.at(overlap, (clusters[known], previous[known]), 1.0)
    _, models = linear_sum_assignment(overlap, maximize=True)
    return np.asarray(models, dtype=np.int64)


def match_in_order(num_clusters: int, num_models: int) -> IntArray:
    """Give cluster c model c: clusters are numbered in the order of their smallest client key.

    Raises ValueError if there are more clusters than models.

    Source: CLoVE, ablation "no matching".
    """
    _check(num_clusters, num_models)
    return np.arange(num_clusters, dtype=np.int64)


def _count(clusters: IntArray) -> int:
    return int(clusters.max()) + 1 if len(clusters) else 0


def check_match(models: IntArray, clusters: IntArray, num_models: int, source: str) -> None:
    """Raise ValueError where clusters do not have a model of their own each."""
    count = int(clusters.max()) + 1
    if models.shape != (count,) or len(set(models.tolist()) & set(range(num_models))) < count:
        raise ValueError(
            f"{source} returned {models!r}: give each of {count} clusters a model of its own, "
            f"from 0 to {num_models - 1}"
        )


def _check(num_clusters: int, num_models: int) -> None:
    if num_clusters > num_models:
        raise ValueError(
            f"{num_clusters} clusters cannot be matched to {num_models} models, each with one of its own: "
            f"ask for at most {num_models} clusters."
        )
