"""Agreement of clusters and models with the true ones."""

from collections.abc import Sequence

import numpy as np

from florets.strategies.core import FloatArray, IntArray


def adjusted_rand_index(true: Sequence[int], found: Sequence[int]) -> float | None:
    """Return the adjusted Rand index of two groupings of the same clients; None for fewer than two clients.

    Source: Hubert and Arabie, Comparing partitions, 1985, in terms of pairs of clients. scikit-learn's function warns
    when most groups hold one client, as in Local-only.
    """
    if len(true) != len(found):
        raise ValueError(f"{len(true)} true and {len(found)} found groups: both need one for each client.")
    if len(true) < 2:
        return None
    _, rows = np.unique(np.asarray(true), return_inverse=True)
    _, columns = np.unique(np.asarray(found), return_inverse=True)
    table = np.zeros((int(rows.max()) + 1, int(columns.max()) + 1), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    # Python's integers: products of pair counts leave 64 bits from about 80,000 clients on.
    both = _pairs(table)
    only_true = _pairs(table.sum(axis=1)) - both
    only_found = _pairs(table.sum(axis=0)) - both
    neither = _pairs(np.array([len(true)])) - both - only_true - only_found
    if only_true == 0 and only_found == 0:
        return 1.0
    above_chance = 2 * (both * neither - only_true * only_found)
    scale = (both + only_true) * (only_true + neither) + (both + only_found) * (only_found + neither)
    return above_chance / scale


def _pairs(sizes: IntArray) -> int:
    return int((sizes * (sizes - 1) // 2).sum())


def model_error(bank: FloatArray, true_models: FloatArray) -> float:
    """Return d(theta, theta*), the largest distance of a true model (L, R) from its own found one (K, R).

    With K >= L it is the least over all ways of giving each true model a found one of its own; with K < L that to the
    nearest. Infinite if too many models are not finite.

    Source: mixed regression, Sec. IV, d(theta, theta*), there with K = L.
    """
    if not len(bank) or not len(true_models) or bank.shape[1] != true_models.shape[1]:
        raise ValueError(f"models of shapes {bank.shape} and {true_models.shape} cannot be compared.")
    # It takes a fifth of a second, which the command's --help need not spend.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching
    from scipy.spatial.distance import cdist

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
