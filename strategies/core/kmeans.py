"""k-means of the rows of a matrix: greedy k-means++ and Lloyd's algorithm."""

import numpy as np
from scipy.spatial.distance import cdist

from florets.strategies.core import FloatArray, IntArray

_STARTS, _MOST_STEPS, _TOLERANCE = 10, 300, 1e-4


def kmeans(rows: FloatArray, num_clusters: int, seed: int, weights: FloatArray | None = None) -> IntArray:
    """Return the cluster of each finite row (M, D): of ten starts the one with the least sum of squares.

    The draws and the rules are those of scikit-learn's ``KMeans``, whose import takes a second of a run that may take
    three. SciPy's ``kmeans2`` has one start, and no candidates.

    Source: Arthur and Vassilvitskii 2007, with several candidates for each centre (section 6.1).
    """
    points = rows - rows.mean(axis=0)
    mass = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    rng, best, least = np.random.RandomState(seed), np.zeros(len(rows), dtype=np.int64), np.inf
    for _ in range(_STARTS):
        clusters, total = _lloyd(points, mass, _first_centres(points, mass, num_clusters, rng))
        if total < least:
            best, least = clusters, total
    return best


def _first_centres(points: FloatArray, mass: FloatArray, num_clusters: int, rng: np.random.RandomState) -> FloatArray:
    """Return the centres (K, D) of a start: of each step's candidates the best for the sum of squares."""
    candidates, chances = 2 + int(np.log(num_clusters)), np.cumsum(mass)
    chosen = [int(np.searchsorted(chances / chances[-1], rng.random_sample(), side="right"))]
    nearest = cdist(points, points[chosen], "sqeuclidean")[:, 0]
    for _ in range(num_clusters - 1):
        aims = rng.random_sample(candidates) * (nearest @ mass)
        # Rounding can place an aim beyond the last sum.
        tried = np.minimum(np.searchsorted(np.cumsum(mass * nearest), aims), len(points) - 1)
        left = np.minimum(nearest[:, np.newaxis], cdist(points, points[tried], "sqeuclidean"))
        best = int((mass @ left).argmin())
        chosen.append(int(tried[best]))
        nearest = left[:, best]
    return points[chosen]


def _lloyd(points: FloatArray, mass: FloatArray, centres: FloatArray) -> tuple[IntArray, float]:
    """Return the clusters (M,) and the sum of squares that a start leads to."""
    tolerance = _TOLERANCE * points.var(axis=0).mean()
    clusters = np.full(len(points), -1)
    for _ in range(_MOST_STEPS):
        before, clusters = clusters, _nearest(points, centres)
        moved = _means(points, mass, clusters, centres)
        if np.array_equal(clusters, before):
            break
        is_near = np.square(moved - centres).sum() <= tolerance
        centres = moved
        if is_near:
            clusters = _nearest(points, centres)
            break
    return clusters, float(mass @ np.square(points - centres[clusters]).sum(axis=1))


def _means(points: FloatArray, mass: FloatArray, clusters: IntArray, centres: FloatArray) -> FloatArray:
    """Return the means (K, D) of the clusters; one without rows takes the row farthest from its own centre."""
    belongs = np.eye(len(centres))[:, clusters] * mass
    totals, sums = belongs.sum(axis=1), belongs @ points
    if len(empty := np.flatnonzero(totals == 0)):
        far = np.square(points - centres[clusters]).sum(axis=1)
        for cluster, row in zip(empty, np.argsort(-far, kind="stable"), strict=False):
            for place, share in ((clusters[row], -mass[row]), (cluster, mass[row])):
                sums[place] += share * points[row]
                totals[place] += share
    means: FloatArray = sums / totals[:, np.newaxis]
    return means


def _nearest(points: FloatArray, centres: FloatArray) -> IntArray:
    nearest: IntArray = (np.square(centres).sum(axis=1) - 2 * (points @ centres.T)).argmin(axis=1)
    return nearest
