"""Rules that choose the number of clusters of loss vectors."""

import numpy as np
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray, IntArray, cluster

# Up to EXACT_UP_TO vectors all are looked at (all pairs of distances: 32 MB), above it a sample of them.
EXACT_UP_TO = 2000
SAMPLE = 1000


def choose_k(vectors: FloatArray, k_max: int, rule: str, min_improvement: float, rng: np.random.Generator) -> int:
    """Return the number of clusters that the loss vectors show.

    Ward's clusters are judged for every K; they only choose K, the clients are grouped afterwards by
    `cluster`. Defined outcomes for small inputs: no vector, one vector or all vectors equal give 1, and so
    does ``k_max = 1``; vectors that differ give at least 2, because no rule can tell one
    cluster from two, so two different vectors give 2; the answer never exceeds the number of distinct
    vectors.

    Parameters
    ----------
    vectors : (M, D) float64
        Loss vectors, one row a client; see `cluster.finite_losses` for NaN. Above 2,000 rows, 1,000 of them
        drawn without replacement stand for all.
    k_max : int
        Largest K considered, at least 1.
    rule : str
        ``"silhouette"``: the K of the best mean silhouette, for K up to M - 1, because the silhouette of M
        clusters is not defined. ``"silhouette_lone"``: the same, but a client alone in its cluster has no 0 (see
        `min_improvement`): in place of its mean distance within the cluster stands the largest of any client
        that has company. It helps where a round has few participants a cluster, whatever K is; clusters that are
        hard to tell apart it splits more often than the plain rule. ``"elbow"``: the K at which the falling
        within-cluster sum of squares lies farthest below the straight line between its ends, both axes scaled to
        [0, 1]. The curve goes one step beyond `k_max` so that `k_max` itself can be the knee. The smaller K wins
        a tie in all these rules.
    min_improvement : float
        For ``"silhouette"``: a larger K must beat the best score so far by more than this share of its
        absolute value, which means the same for negative scores. 0 takes any improvement. A negative value is
        a tolerance: a larger K is taken even where it costs less than this share. The silhouette of a client
        alone in its cluster is 0 by definition, so with few participants two lone clients score a little better
        together than apart. A tolerance keeps them apart, but splits clusters where there are many: to split one of
        20 costs less than 5 % of the mean. Not used by the other rules but ``"silhouette_lone"``.
    rng : numpy.random.Generator
        Draws the sample; not used for 2,000 vectors or fewer.

    Returns
    -------
    int
        From 1 to `k_max`.

    Source: CLoVE Alg. 2 (``"silhouette"``); the elbow rule is named in the text that explains it.
    Deviation: ``"silhouette_lone"`` is ours.
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
    if rule == "elbow":
        return _elbow(rows, largest)
    return _best_silhouette(rows, largest, min_improvement, rule == "silhouette_lone")


def _best_silhouette(rows: FloatArray, largest: int, min_improvement: float, judge_lone: bool) -> int:
    """Return the K from 2 to `largest` of the best silhouette; 2 where only two rows are left to judge."""
    tree = cluster.ward_tree(rows)
    # Differences of coordinates, not the faster expansion by inner products: in late rounds the vectors of
    # a cluster agree in most of their digits, and the expansion loses exactly those that differ.
    distances: FloatArray = squareform(pdist(rows))
    best, best_score = 2, -1.0
    for num_clusters in range(2, min(largest, len(rows) - 1) + 1):
        labels = cluster.canonical(cluster.cut(tree, num_clusters))
        judge = _score_with_lone if judge_lone else _score
        score = judge(distances, labels)
        if score > best_score + min_improvement * abs(best_score):
            # Not simply the score: with a tolerance it may be the lower one, and tolerances must not add up.
            best, best_score = num_clusters, max(best_score, score)
    return best


def _score(distances: FloatArray, labels: IntArray) -> float:
    from sklearn.metrics import silhouette_score  # its import takes a second: only where it is used

    return float(silhouette_score(distances, labels, metric="precomputed"))


def _score_with_lone(distances: FloatArray, labels: IntArray) -> float:
    """Return the mean silhouette in which rows alone in their cluster are judged as well, and not 0."""
    from sklearn.metrics import silhouette_samples  # as above

    values = silhouette_samples(distances, labels, metric="precomputed")
    sizes = np.bincount(labels)
    lone = sizes[labels] == 1
    if lone.any():
        rows = np.arange(len(labels))
        sums = distances @ np.eye(len(sizes))[labels]
        within = sums[rows, labels][~lone] / (sizes[labels][~lone] - 1)
        means = sums / sizes
        means[rows, labels] = np.inf
        nearest = means.min(axis=1)[lone]
        # With fewer clusters than rows somebody has company. Tiny differences may square to a distance of 0.
        largest = np.maximum(nearest, within.max())
        values[lone] = np.divide(nearest - within.max(), largest, out=np.zeros(len(nearest)), where=largest > 0)
    return float(values.mean())


def _elbow(rows: FloatArray, largest: int) -> int:
    """Return the knee, from 2 to `largest`, of the within-cluster sums of squares one step beyond it."""
    sums = cluster.within_sums(cluster.ward_tree(rows))
    # With every row alone nothing is left within: the curve stays at 0 from there on.
    curve = np.concatenate([sums, [0.0]])[: largest + 1]
    if curve[0] == 0.0:
        # The squares of the differences are below the smallest number: the rows are equal for our purposes.
        return 1
    share = curve / curve[0]
    line = np.linspace(share[0], share[-1], len(share))
    # The distance to a straight line is proportional to the vertical gap.
    gap = (line - share)[1:-1]
    return 2 + int(np.argmax(gap))
