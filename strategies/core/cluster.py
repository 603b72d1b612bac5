"""Clusters of the clients' vectors: k-means and Ward; their number, centroids and match to models."""

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist, squareform

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.kmeans import kmeans
from florets.task.device import one_thread


def finite_losses(losses: FloatArray) -> FloatArray:
    """Return losses (M, K) with NaN and infinity replaced by the largest finite loss, or 0, and -0.0 by 0.0."""
    # Adding 0.0 turns -0.0 into 0.0, which is otherwise another row to a bytewise comparison.
    clean: FloatArray = np.array(losses, dtype=np.float64) + 0.0
    bad = ~np.isfinite(clean)
    if bad.any():
        good = clean[~bad]
        clean[bad] = good.max() if good.size else 0.0
    return clean


def group_means(rows: FloatArray, groups: IntArray, count: int = 0) -> FloatArray:
    """Return the mean of each group's rows (C, D), C at least `count`; NaN for a group without any."""
    sizes = np.bincount(groups, minlength=count)[:, np.newaxis]
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, groups, rows)
    means: FloatArray = np.divide(sums, sizes, out=np.full_like(sums, np.nan), where=sizes > 0)
    return means


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

    `method` is ``"kmeans"`` (with `weights` (M,) of rows) or ``"agglomerative"`` (Ward). Equal rows always share a
    cluster; there are at most as many clusters as distinct rows.

    Source: CLoVE Alg. 1, line 11; its released code has both methods.
    Deviation: of more than 5,000 rows Ward's method merges as many, and the others join the nearest cluster.
    Deviation: ten starts of k-means instead of the published code's one, which may end in a poor local optimum.
    """
    rows = finite_losses(vectors)
    if len(rows) == 0:
        return np.zeros(0, dtype=np.int64)
    own = distinct_rows(rows)
    if num_clusters > own.max():
        return own
    if method == "agglomerative" and len(rows) > MOST_MERGED:
        cohort = rows[np.sort(rng.choice(len(rows), size=MOST_MERGED, replace=False))]
        merged = cluster(cohort, num_clusters, method, rng)
        return canonical(nearest_centroid(rows, centroids(cohort, merged)))
    if method == "agglomerative":
        return canonical(cut(ward_tree(rows), num_clusters))
    # Sums depend on the number of threads in their last bits.
    with one_thread():
        return canonical(kmeans(rows, num_clusters, int(rng.integers(2**31 - 1)), weights))


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

    A cut at a distance (SciPy's ``fcluster``) would return fewer where several merges have equal distances.
    """
    num_rows = len(tree) + 1
    num_nodes = 2 * num_rows - num_clusters
    root = np.arange(num_nodes, dtype=np.int64)
    # A node is made before it is merged: from the last merge down, every parent's root is known already.
    for node in range(num_nodes - 1, num_rows - 1, -1):
        left, right = tree[node - num_rows, :2].astype(np.int64)
        root[left] = root[right] = root[node]
    return root[:num_rows]


def match_min_cost(losses: FloatArray, clusters: IntArray) -> IntArray:
    """Give each cluster a model of its own (C,) such that the sum of all losses (M, K) is least.

    With fewer clusters than models some models stay unmatched.

    Source: CLoVE Alg. 1, line 12.
    """
    costs = np.zeros((int(clusters.max()) + 1, losses.shape[1]))
    np.add.at(costs, clusters, finite_losses(losses))
    _, models = linear_sum_assignment(costs)
    return np.asarray(models, dtype=np.int64)


def match_overlap(clusters: IntArray, previous: IntArray, num_models: int) -> IntArray:
    """Give each cluster a model of its own (C,) such that the most clients keep their `previous` one (M,).

    Source: CFL-GP, Sec. 3, spectral clustering, step (c); an option that the published CLoVE code never implemented.
    """
    overlap = np.zeros((int(clusters.max()) + 1, num_models))
    known = previous >= 0
    np.add.at(overlap, (clusters[known], previous[known]), 1.0)
    _, models = linear_sum_assignment(overlap, maximize=True)
    return np.asarray(models, dtype=np.int64)


def check_match(models: IntArray, clusters: IntArray, num_models: int, source: str) -> None:
    """Raise ValueError where clusters do not have a model of their own each."""
    count = int(clusters.max()) + 1
    if models.shape != (count,) or len(set(models.tolist()) & set(range(num_models))) < count:
        raise ValueError(
            f"{source} returned {models!r}: give each of {count} clusters a model of its own, "
            f"from 0 to {num_models - 1}"
        )


# Up to EXACT_UP_TO vectors all are looked at (all pairs of distances: 32 MB), above it a sample of them.
EXACT_UP_TO = 2000
SAMPLE = 1000


def choose_k(vectors: FloatArray, k_max: int, rng: np.random.Generator) -> int:
    """Return the number of clusters, up to `k_max`, of the best mean silhouette of Ward's clusters of vectors (M, D).

    Vectors that are all equal give 1, others at least 2, because the silhouette cannot tell one cluster from two.
    Above 2,000 rows, 1,000 drawn by `rng` stand for all.

    Source: CLoVE, Alg. 2.
    """
    rows = finite_losses(vectors)
    if len(rows) > EXACT_UP_TO:
        rows = rows[np.sort(rng.choice(len(rows), size=SAMPLE, replace=False))]
    num_distinct = int(distinct_rows(rows).max()) + 1 if len(rows) else 0
    largest = min(k_max, num_distinct)
    if largest < 2:
        return 1
    from sklearn.metrics import silhouette_score  # its import takes a second: only where it is used

    tree = ward_tree(rows)
    # Differences of coordinates, not the faster expansion by inner products: in late rounds the vectors of
    # a cluster agree in most of their digits, and the expansion loses exactly those that differ.
    distances: FloatArray = squareform(pdist(rows))
    # 2 where only two rows are left to judge.
    best, best_score = 2, -1.0
    for num_clusters in range(2, min(largest, len(rows) - 1) + 1):
        labels = canonical(cut(tree, num_clusters))
        score = float(silhouette_score(distances, labels, metric="precomputed"))
        if score > best_score:
            best, best_score = num_clusters, score
    return best
