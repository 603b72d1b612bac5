"""Clustering of rows, a minority of which may be false: distant rows are clipped, or set aside and placed later."""

from collections.abc import Callable

import numpy as np
from scipy.spatial.distance import cdist

from florets.strategies.core import BoolArray, FloatArray, IntArray, cluster
from florets.strategies.core.outliers import LEAST_CLIENTS, lower_median

FARTHEST = 2.0
"""Distance from the centre beyond which a row is far, relative to the nearest of the `hostile` + 1 farthest."""
ELBOW = 0.5
"""Largest ratio S(K) S(K) / (S(K - 1) S(K + 1)) of within-cluster sums of squares with which K groups are real."""
ELBOW_OF_TWO = 0.25
SHORT = 0.25
"""Length, relative to the median row's, below which a row has no direction and belongs to no group."""
WITHIN = 0.25
"""Largest distance of a clear group's rows from its centre, relative to that of the nearest other centre."""
OUTSIDE = 0.5
"""Relative distance from the nearest centre beyond which a row belongs to no group."""
CUTS = 20
"""Most numbers of clusters that are tried in search of clear groups."""


def from_centre(rows: FloatArray, hostile: int) -> tuple[FloatArray, FloatArray, float]:
    """Return the median centre (D,), the distances from it (M,), and the one beyond which a row of (M, D) is far."""
    centre = np.median(rows, axis=0)
    distances = np.linalg.norm(rows - centre, axis=1)
    reference = float(np.sort(distances)[-1 - hostile])
    # Where all others are equal nothing says what is far.
    return centre, distances, FARTHEST * reference if reference > 0 else np.inf


def drawn_in(rows: FloatArray, hostile: int) -> FloatArray:
    """Return rows (M, D) of which the far ones are as far as they may be, in the direction in which they were."""
    if len(rows) < LEAST_CLIENTS:
        return rows
    centre, distances, limit = from_centre(rows, hostile)
    factors = np.where(distances > limit, limit / np.where(distances > limit, distances, 1.0), 1.0)
    inside: FloatArray = centre + (rows - centre) * factors[:, np.newaxis]
    return inside


def far_rows(rows: FloatArray, hostile: int) -> BoolArray:
    """Return the mask (M,) of the far ones among rows (M, D): at most `hostile`, and none of fewer than three."""
    if len(rows) < LEAST_CLIENTS:
        return np.zeros(len(rows), dtype=np.bool_)
    _, distances, limit = from_centre(rows, hostile)
    mask: BoolArray = distances > limit * (1 + 1e-9)
    return mask


def lone_rows(rows: FloatArray, num_clusters: int, hostile: int, rng: np.random.Generator) -> BoolArray:
    """Return the mask (M,) of rows (M, D) that are of none of `num_clusters` clear groups: at most `hostile`.

    Ward's tree is cut into more clusters than there are groups, of which the largest are the groups; lone rows near
    to each other must be at most half as many as the smallest has. Where groups are not clear (`WITHIN`, `OUTSIDE`)
    none is lone.
    """
    none = np.zeros(len(rows), dtype=np.bool_)
    lengths = np.linalg.norm(rows, axis=1)
    short = lengths < SHORT * lower_median(lengths)
    some = np.flatnonzero(~short)
    if len(some) > cluster.MOST_MERGED:
        some = np.sort(rng.choice(some, size=cluster.MOST_MERGED, replace=False))
    if num_clusters < 2 or len(some) < num_clusters + LEAST_CLIENTS:
        return none
    tree = cluster.ward_tree(rows[some])
    for more in sorted({round(hostile * part / CUTS) for part in range(CUTS + 1)}):
        clusters = cluster.cut(tree, min(num_clusters + more, len(some)))
        largest = np.argsort(-np.bincount(clusters), kind="stable")[:num_clusters]
        centres = cluster.centroids(rows[some], clusters)[largest]
        apart = cdist(centres, centres) + np.diag(np.full(num_clusters, np.inf))
        distances = cdist(rows, centres)
        nearest = distances.argmin(axis=1)
        relative = distances.min(axis=1) / np.maximum(apart.min(axis=1)[nearest], np.finfo(np.float64).tiny)
        lone: BoolArray = short | (relative > OUTSIDE)
        if lone.sum() > hostile or relative[~lone].max() > WITHIN:
            continue
        strangers = rows[lone & ~short]
        near = cdist(strangers, strangers) <= WITHIN * apart.min()
        if 2 * near.sum(axis=1).max(initial=0) <= np.bincount(nearest[~lone], minlength=num_clusters).min():
            return lone
    return none


def has_groups(rows: FloatArray, num_clusters: int, rng: np.random.Generator) -> bool:
    """Say whether rows fall into `num_clusters` groups and not into one less.

    The K-th group is real if it lowers the sum of squares S by much more than the next: S(K) / S(K - 1) <= `ELBOW`
    S(K + 1) / S(K). On digits the quotient of the two was 0.01 to 0.3 for the right K and 0.63 to 1.2 for one more.
    """
    if len(rows) < LEAST_CLIENTS * num_clusters or num_clusters < 2:
        return False
    elbow = ELBOW if num_clusters > 2 else ELBOW_OF_TWO
    fewer, same, more = (_within(rows, k, rng) for k in (num_clusters - 1, num_clusters, num_clusters + 1))
    return same**2 <= elbow * fewer * more or same <= 1e-12 * fewer


def _within(rows: FloatArray, num_clusters: int, rng: np.random.Generator) -> float:
    found = cluster.cluster(rows, num_clusters, "kmeans", rng)
    return float(np.square(rows - cluster.group_means(rows, found)[found]).sum())


def placed(rows: FloatArray, aside: BoolArray, group: Callable[[FloatArray], IntArray]) -> IntArray:
    """Return the clusters (M,) of rows: what `group` makes of those not set aside, and for the others the nearest."""
    found = np.empty(len(rows), dtype=np.int64)
    found[~aside] = group(rows[~aside])
    if aside.any():
        found[aside] = cluster.nearest_centroid(rows[aside], cluster.centroids(rows[~aside], found[~aside]))
    return found
