"""Clusters by density: DBSCAN whose radius is the knee of the nearest-neighbour distances."""

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical

_ROUNDING = 1e-12


def density_clusters(points: FloatArray, scale: float = 1.0) -> tuple[IntArray, float]:
    """Return the cluster of each point, numbered from 0 in order of first appearance, and the radius.

    Two points within the radius are of one cluster, and so are their neighbours; a point that has none is a cluster
    of its own. That is DBSCAN with at least two points (a point and one neighbour are enough), in which every point
    is a core point or an outlier.

    Parameters
    ----------
    points : (M, D) float64
        At least one.
    scale : float
        The radius is `knee` of the distances to the nearest neighbours times this.

    Source: Fenoglio et al. 2025 (FLUX), adaptive DBSCAN; each outlier a cluster of its own as in the published code.
    """
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.int64), 0.0
    distances = squareform(pdist(points))
    others = distances + np.diag(np.full(len(points), np.inf))
    radius = scale * knee(np.sort(others.min(axis=1)))
    _, labels = connected_components(distances <= radius, directed=False)
    return canonical(labels.astype(np.int64)), radius


def knee(values: FloatArray) -> float:
    """Return where a rising curve begins to rise steeply: the last of its knees; its largest value if there is none.

    Parameters
    ----------
    values : (M,) float64
        Sorted, smallest first.

    Source: Satopää et al. 2011 (Kneedle) with S = 1, for convex and increasing curves: the curve is turned by 180
    degrees and looked through from its steep end, up to the first knee.
    """
    last = len(values) - 1
    span = float(values[-1] - values[0])
    if last < 2 or span == 0:
        return float(values[-1])
    turned = (values[-1] - values[::-1]) / span
    above = turned - np.linspace(0.0, 1.0, last + 1)
    found = None
    for place in range(1, last):
        before, here, after = above[place - 1 : place + 2]
        if here > _ROUNDING and here >= before and here >= after:
            found = place
        elif here <= before and here <= after:
            found = None
        # Mean distance of two points of the abscissa: the least that the curve must fall behind its knee.
        if found is not None and after < above[found] - 1.0 / last - _ROUNDING:
            return float(values[last - found])
    return float(values[-1])
