"""The number of clusters of loss vectors, by their silhouette."""

import numpy as np
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray, cluster

# Up to EXACT_UP_TO vectors all are looked at (all pairs of distances: 32 MB), above it a sample of them.
EXACT_UP_TO = 2000
SAMPLE = 1000


def choose_k(vectors: FloatArray, k_max: int, rng: np.random.Generator) -> int:
    """Return the number of clusters that the loss vectors show: the K of the best mean silhouette.

    Ward's clusters are judged for every K up to M - 1, because the silhouette of M clusters is not defined; the
    smaller K wins a tie. They only choose K, the clients are grouped afterwards by `cluster`. Defined outcomes for
    small inputs: no vector, one vector or all vectors equal give 1, and so does ``k_max = 1``; vectors that differ
    give at least 2, because the silhouette cannot tell one cluster from two; the answer never exceeds the number of
    distinct vectors.

    Parameters
    ----------
    vectors : (M, D) float64
        Loss vectors, one row a client; see `cluster.finite_losses` for NaN. Above 2,000 rows, 1,000 of them
        drawn without replacement stand for all.
    k_max : int
        Largest K considered, at least 1.
    rng : numpy.random.Generator
        Draws the sample; not used for 2,000 vectors or fewer.

    Returns
    -------
    int
        From 1 to `k_max`.

    Source: CLoVE, Alg. 2.
    """
    if k_max < 1:
        raise ValueError(f"k_max is {k_max}: it must be at least 1.")
    rows = cluster.finite_losses(vectors)
    if len(rows) > EXACT_UP_TO:
        rows = rows[np.sort(rng.choice(len(rows), size=SAMPLE, replace=False))]
    num_distinct = int(cluster.distinct_rows(rows).max()) + 1 if len(rows) else 0
    largest = min(k_max, num_distinct)
    if largest < 2:
        return 1
    from sklearn.metrics import silhouette_score  # its import takes a second: only where it is used

    tree = cluster.ward_tree(rows)
    # Differences of coordinates, not the faster expansion by inner products: in late rounds the vectors of
    # a cluster agree in most of their digits, and the expansion loses exactly those that differ.
    distances: FloatArray = squareform(pdist(rows))
    # 2 where only two rows are left to judge.
    best, best_score = 2, -1.0
    for num_clusters in range(2, min(largest, len(rows) - 1) + 1):
        labels = cluster.canonical(cluster.cut(tree, num_clusters))
        score = float(silhouette_score(distances, labels, metric="precomputed"))
        if score > best_score:
            best, best_score = num_clusters, score
    return best
