"""k-means of the rows of a matrix: greedy k-means++ and Lloyd's algorithm, all starts side by side."""

import numpy as np
import numpy.typing as npt

from florets.strategies.core import FloatArray, IntArray

_STARTS, _MOST_STEPS, _TOLERANCE = 10, 300, 1e-4
_DISTANCES = 2**17
"""Distances of rows to centres at a time: 1 MB, which stays in the cache."""

Mask = npt.NDArray[np.bool_]


def kmeans(rows: FloatArray, num_clusters: int, seed: int, weights: FloatArray | None = None) -> IntArray:
    """Return the cluster of each finite row (M, D): of ten starts the one with the least sum of squares.

    The draws and the rules are those of scikit-learn's ``KMeans``, whose import takes a second of a run that may take
    three, so that results are equal but for ties. SciPy's ``kmeans2`` has one start, and no candidates.

    Source: Arthur and Vassilvitskii 2007, with several candidates for each centre (section 6.1).
    """
    points = rows - rows.mean(axis=0)
    mass = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
    candidates = 2 + int(np.log(num_clusters))
    draws = np.random.RandomState(seed).random_sample((_STARTS, 1 + candidates * (num_clusters - 1)))
    at_once = max(1, _DISTANCES // (len(rows) * max(num_clusters, candidates)))
    found = []
    for begin in range(0, _STARTS, at_once):
        found.append(_lloyd(points, mass, _first_centres(points, mass, num_clusters, draws[begin : begin + at_once])))
    clusters, sums = (np.concatenate(part) for part in zip(*found, strict=True))
    best: IntArray = clusters[sums.argmin()]
    return best


def _first_centres(points: FloatArray, mass: FloatArray, num_clusters: int, draws: FloatArray) -> FloatArray:
    """Return the centres (S, K, D) of S starts: of each step's candidates the best for the sum of squares.

    `draws` (S, 1 + candidates (K - 1)) are uniform numbers from 0 to 1.
    """
    starts = np.arange(len(draws))
    lengths = np.square(points).sum(axis=1)
    chances = np.cumsum(mass)
    centres = np.empty((len(draws), num_clusters, points.shape[1]))
    centres[:, 0] = points[np.searchsorted(chances / chances[-1], draws[:, 0], side="right")]
    nearest = _squares(points, lengths, centres[:, :1])[..., 0]
    for k, drawn in enumerate(np.split(draws[:, 1:], num_clusters - 1, axis=1) if num_clusters > 1 else [], start=1):
        totals = np.cumsum(mass * nearest, axis=1)
        aims = drawn * (nearest @ mass)[:, np.newaxis]
        tried = np.array([np.searchsorted(total, aim) for total, aim in zip(totals, aims, strict=True)])
        # Rounding can place an aim beyond the last sum.
        tried = np.minimum(tried, len(points) - 1)
        left = np.minimum(nearest[..., np.newaxis], _squares(points, lengths, points[tried]))
        best = np.einsum("smc,m->sc", left, mass).argmin(axis=1)
        centres[:, k], nearest = points[tried[starts, best]], left[starts, :, best]
    return centres


def _lloyd(points: FloatArray, mass: FloatArray, centres: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the clusters (S, M) and the sums of squares (S,) that S starts lead to."""
    tolerance = _TOLERANCE * points.var(axis=0).mean()
    turned = np.ascontiguousarray(points.T)
    members = np.zeros((*centres.shape[:2], len(points)), dtype=np.bool_)
    moving = np.arange(len(centres))
    for _ in range(_MOST_STEPS):
        nearest = _nearest(turned, centres[moving])
        moved = _means(points, mass, nearest, centres[moving])
        changed = (nearest != members[moving]).any(axis=(1, 2))
        near = np.square(moved - centres[moving]).sum(axis=(1, 2)) <= tolerance
        members[moving], centres[moving] = nearest, moved
        settled = moving[changed & near]
        members[settled] = _nearest(turned, centres[settled])
        moving = moving[changed & ~near]
        if not len(moving):
            break
    members[moving] = _nearest(turned, centres[moving])
    clusters: IntArray = members.argmax(axis=1)
    sums = [
        mass @ np.square(points - own[assigned]).sum(axis=1) for own, assigned in zip(centres, clusters, strict=True)
    ]
    return clusters, np.array(sums)


def _means(points: FloatArray, mass: FloatArray, members: Mask, centres: FloatArray) -> FloatArray:
    """Return the means (S, K, D) of the clusters; one without rows takes the row farthest from its own centre."""
    belongs = members * mass
    totals, sums = belongs.sum(axis=2), belongs @ points
    for start in np.flatnonzero((totals == 0).any(axis=1)):
        assigned = members[start].argmax(axis=0)
        far = np.square(points - centres[start, assigned]).sum(axis=1)
        empty = np.flatnonzero(totals[start] == 0)
        for cluster, row in zip(empty, np.argsort(-far, kind="stable")[: len(empty)], strict=True):
            if far[row] == 0:
                break
            sums[start, assigned[row]] -= mass[row] * points[row]
            totals[start, assigned[row]] -= mass[row]
            sums[start, cluster], totals[start, cluster] = mass[row] * points[row], mass[row]
        left, largest = totals[start] == 0, totals[start].argmax()
        sums[start, left], totals[start, left] = sums[start, largest], totals[start, largest]
    means: FloatArray = sums / totals[..., np.newaxis]
    return means


def _nearest(turned: FloatArray, centres: FloatArray) -> Mask:
    """Return whether each centre is the nearest of each row (S, K, M), the first among equals; `turned` is (D, M)."""
    distances = -2 * (centres @ turned)
    distances += np.square(centres).sum(axis=2)[..., np.newaxis]
    nearest: Mask = distances == distances.min(axis=1, keepdims=True)
    if np.count_nonzero(nearest) > nearest[:, 0].size:
        nearest &= np.cumsum(nearest, axis=1) == 1
    return nearest


def _squares(points: FloatArray, lengths: FloatArray, centres: FloatArray) -> FloatArray:
    """Return the squared distances (S, M, C) of the rows to the centres (S, C, D)."""
    squares: FloatArray = -2 * (points @ centres.transpose(0, 2, 1))
    squares += np.square(centres).sum(axis=2)[:, np.newaxis]
    squares += lengths[:, np.newaxis]
    return np.maximum(squares, 0, out=squares)
