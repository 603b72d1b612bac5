"""Weights by which each client's head is combined from all heads."""

import numpy as np

from florets.strategies.core import FloatArray, IntArray

_LEAST_SPREAD = 1e-12
"""Of clients whose statistics have no spread at all: equal ones then get equal weights."""


def known_spreads(spreads: FloatArray, counts: IntArray) -> FloatArray:
    """Return the spreads (m,) of the statistics of clients with counts (m,) samples, where one sample shows none.

    A client with one sample gets n_j v_j, the spread of one sample, as the mean over the clients with more of them.
    Deviation: the formula gives it 0, as if it knew its own head to be right, and it would learn from nobody.
    """
    several = counts > 1
    if several.all() or not several.any():
        return spreads
    return np.where(several, spreads, np.mean(counts[several] * spreads[several]))


def head_weights(statistics: FloatArray, spreads: FloatArray, drop: float = 0.0) -> FloatArray:
    """Return the weights (m, m): row i combines the heads of m clients into that of client i.

    Row i is the minimum over the simplex of sum_j a_j^2 v_j + |sum_j a_j (h_i - h_j)|^2: variance of the combined
    estimate, and its bias for client i.

    Parameters
    ----------
    statistics : (m, S) float64
        h_i, mean features of each class times the class's share, flat.
    spreads : (m,) float64
        v_i, at least 0.
    drop : float
        Weights below it count nothing; the others are scaled to a sum of 1.

    Source: Xu et al. 2023 (FedPAC, arXiv 2306.11867), the combination of classifiers. Solved as non-negative least
    squares: with a penalty of (sum_j a_j - 1)^2 in place of the condition on the sum only the scale changes.
    """
    from scipy.optimize import nnls

    roots = np.diag(np.sqrt(np.maximum(spreads, _LEAST_SPREAD)))
    ones = np.ones((1, len(spreads)))
    found = np.empty((len(spreads), len(spreads)))
    for row, own in enumerate(statistics):
        system = np.concatenate([roots, (own - statistics).T, ones])
        target = np.zeros(len(system))
        target[-1] = 1.0
        weights = nnls(system, target)[0]
        weights /= weights.sum()
        # The largest weight stays whatever is dropped, and those that differ from it by rounding alone.
        weights[weights < min(drop, weights.max() * (1 - 1e-9))] = 0.0
        found[row] = weights / weights.sum()
    return found
