"""Clustering of rows, a minority of which may be false: these are set aside, and placed afterwards."""

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from florets.strategies.core import BoolArray, FloatArray, IntArray, cluster
from florets.strategies.core.outliers import LEAST_CLIENTS

FARTHEST = 2.0
"""Distance from the median row beyond which a row is far, relative to the nearest of the `hostile` + 1 farthest."""
WITHIN = 0.25
"""Largest distance of a clear group's rows from its centre, relative to that of the nearest other centre."""
OUTSIDE = 0.5
"""Relative distance from the nearest centre beyond which a row belongs to no group."""
CUTS = 20
"""Most numbers of clusters that are tried in search of clear groups."""


def far_rows(rows: FloatArray, hostile: int) -> BoolArray:
    """Return the mask (M,) of the far ones among rows (M, D): at most `hostile`, and none of fewer than three."""
    if len(rows) < LEAST_CLIENTS:
        return np.zeros(len(rows), dtype=np.bool_)
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    reference = float(np.sort(distances)[-1 - hostile])
    # Where all others are equal nothing says what is far.
    mask: BoolArray = distances > (FARTHEST * reference if reference > 0 else np.inf)
    return mask


def lone_rows(rows: FloatArray, num_clusters: int, hostile: int, rng: np.random.Generator) -> BoolArray:
    """Return the mask (M,) of rows (M, D) that are of none of `num_clusters` clear groups: at most `hostile`.

    Ward's tree of those that are not far is cut into more clusters than there are groups, of which the largest are
    the groups; others that are near to each other must be at most half as many as the smallest has, or as many if
    they are far. Where groups are not clear (`WITHIN`, `OUTSIDE`) none is lone.
    """
    none, far = np.zeros(len(rows), dtype=np.bool_), far_rows(rows, hostile)
    some = np.flatnonzero(~far)
    if len(some) > cluster.MOST_MERGED:
        some = np.sort(rng.choice(some, size=cluster.MOST_MERGED, replace=False))
    if num_clusters < 2 or hostile < 1 or len(some) < num_clusters + LEAST_CLIENTS:
        return none
    tree = cluster.ward_tree(rows[some])
    for more in sorted({round(hostile * part / CUTS) for part in range(CUTS + 1)}):
        clusters = cluster.cut(tree, min(num_clusters + more, len(some)))
        largest = np.argsort(-np.bincount(clusters), kind="stable")[:num_clusters]
        centres = cluster.centroids(rows[some], clusters)[largest]
        apart = (cdist(centres, centres) + np.diag(np.full(num_clusters, np.inf))).min(axis=1)
        distances = cdist(rows, centres)
        nearest = distances.argmin(axis=1)
        relative = distances.min(axis=1) / np.maximum(apart[nearest], np.finfo(np.float64).tiny)
        lone: BoolArray = relative > OUTSIDE
        if lone.sum() <= hostile and relative[~lone].max() <= WITHIN:
            near = (cdist(rows[lone], rows[lone]) <= WITHIN * apart.min()).sum(axis=1)
            smallest = np.bincount(nearest[~lone], minlength=num_clusters).min()
            if (near * np.where(far[lone], 1, 2)).max(initial=0) <= smallest:
                return lone
    return none


def placed(rows: FloatArray, aside: BoolArray, group: Callable[[FloatArray], IntArray]) -> IntArray:
    """Return the clusters (M,) of rows: what `group` makes of those not set aside, and for the others the nearest."""
    found = np.empty(len(rows), dtype=np.int64)
    found[~aside] = group(rows[~aside])
    if aside.any():
        found[aside] = cluster.nearest_centroid(rows[aside], cluster.centroids(rows[~aside], found[~aside]))
    return found
