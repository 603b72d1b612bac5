"""Sharpness of the groups of a discovery: whether clients fall into groups, or differ by degrees.

Of clients that differ by degrees some members of a group are nearer to the next in every fold. ``t_f(i)`` is the
coordinate of x_f(i), less its group's centre, on the direction to a neighbouring centre; the sum of t_f(i) t_g(i)
over clients and pairs of folds is compared with its values when the members of a group change places within a fold:
the test is exact given the groups.
"""

import numpy as np

from florets.strategies.core import FloatArray, IntArray

CONTINUUM_LEVEL = 0.01
LEAST_SPREAD = 0.01
"""Spread towards a neighbour, as a share of the squared distance to it, below which groups are sharp all the same.

Clients uniform on a straight line have 1/12; for angles 0.01 to 0.05 were measured, for sharp groups at most 0.009.
"""
_ORDERS = 199


def is_sharp(rows: FloatArray, labels: IntArray, rng: np.random.Generator) -> bool:
    """Say whether at least two groups `labels` (M,) of centred rows (m, M, D) are sharp."""
    p_value, share = spread(rows, labels, rng)
    return not (p_value <= CONTINUUM_LEVEL and share >= LEAST_SPREAD)


def spread(rows: FloatArray, labels: IntArray, rng: np.random.Generator) -> tuple[float, float]:
    """Return the p value that members of a group are alike, and their spread towards the neighbouring groups.

    The spread is their variance in that direction over the median squared distance of neighbouring centres, without
    noise.
    """
    num_folds = len(rows)
    order = np.argsort(labels, kind="stable")
    rows, labels = rows[:, order], labels[order]
    sizes = np.bincount(labels)
    member = np.eye(len(sizes))[labels]
    centres = np.einsum("fid,ik->fkd", rows, member / member.sum(axis=0))
    within, mean = rows - centres[:, labels], centres.mean(axis=0)
    apart = _squares(centres)
    np.fill_diagonal(apart, np.inf)
    coordinates = []
    # A group of a continuum has a neighbour on either side.
    for neighbour in np.argsort(apart, axis=1)[:, : min(2, len(sizes) - 1)].T:
        way = mean[neighbour] - mean
        length = np.linalg.norm(way, axis=1, keepdims=True)
        way /= np.where(length > 0.0, length, 1.0)
        coordinates.append(np.einsum("fid,id->fi", within, way[labels]))
    ways = np.stack(coordinates)  # (ways, m, M)
    own = float((ways**2).sum())

    def agreement(of: FloatArray) -> float:
        return float((of.sum(axis=1) ** 2).sum()) - own

    observed, reached = agreement(ways), 0
    for _ in range(_ORDERS):
        # Labels are sorted: within each label the order is random, and labels stay where they are.
        places = np.argsort(labels + rng.random(within.shape[:2]), axis=1)
        reached += agreement(np.take_along_axis(ways, places[None], axis=2)) >= observed - 1e-12 * own
    company = sizes > 1
    freedom = int((sizes - 1).sum()) * len(ways) * num_folds * (num_folds - 1)
    gap = float(np.median(apart.min(axis=1)[company])) if company.any() else np.nan
    share = observed / freedom / gap if freedom and gap > 0.0 else np.nan
    return (reached + 1) / (_ORDERS + 1), share


def _squares(centres: FloatArray) -> FloatArray:
    """Return the squared distances (K, K) of centres (m, K, D) without noise: products of different folds alone."""
    total = centres.sum(axis=0)
    products = total @ total.T - np.einsum("fkd,fld->kl", centres, centres)
    products /= len(centres) * (len(centres) - 1)
    energy = np.diagonal(products)
    squares: FloatArray = energy[:, None] + energy - 2.0 * products
    np.fill_diagonal(squares, 0.0)
    return squares
