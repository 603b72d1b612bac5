"""Distance of found models from the true ones, under the best matching."""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.spatial.distance import cdist

from florets.strategies.core import FloatArray


def model_error(bank: FloatArray, true_models: FloatArray) -> float:
    """Return d(theta, theta*), the largest distance of a true model from its own found one, pairs chosen at best.

    Parameters
    ----------
    bank
        (K, R), the found models.
    true_models
        (L, R)

    Returns
    -------
    float
        With K >= L: the minimum over all ways of giving each true model a found one of its own, of the largest
        Euclidean distance; models that are left over do not count. With K < L each true model is compared with the
        found model nearest to it, and several may share one: so a single global model is judged by the true model
        that it is farthest from. Infinite if so many models are not finite that none is left for some true one.

    Raises
    ------
    ValueError
        If there is no model or their lengths differ.

    Notes
    -----
    A bottleneck assignment: of the sorted distances the smallest is searched such that a perfect matching with no
    larger one exists. Trying all K! permutations would end at ten models.

    Source: mixed regression, Sec. IV, d(theta, theta*), there with K = L.
    """
    if not len(bank) or not len(true_models) or bank.shape[1] != true_models.shape[1]:
        raise ValueError(f"models of shapes {bank.shape} and {true_models.shape} cannot be compared.")
    distances = cdist(true_models, bank)
    distances[~np.isfinite(distances)] = np.inf
    if len(bank) < len(true_models):
        return float(distances.min(axis=1).max())
    candidates = np.unique(distances[np.isfinite(distances)])
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        matched = maximum_bipartite_matching(csr_array(distances <= candidates[middle]), perm_type="column")
        if (matched >= 0).all():
            high = middle
        else:
            low = middle + 1
    return float(candidates[low]) if low < len(candidates) else float("inf")
