"""Agreement of clusters and models with the true ones."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from florets.strategies.core import FloatArray


def adjusted_rand_index(true: Sequence[int], found: Sequence[int]) -> float | None:
    """Return the adjusted Rand index of two groupings of the same clients; None for fewer than two clients.

    Source: Hubert and Arabie, Comparing partitions, 1985, in terms of pairs of clients. scikit-learn's function warns
    when most groups hold one client, as in Local-only.
    """
    if len(true) != len(found):
        raise ValueError(f"{len(true)} true and {len(found)} found groups: both need one for each client.")
    if len(true) < 2:
        return None
    both = _pairs(zip(true, found, strict=True))
    only_true, only_found = _pairs(true) - both, _pairs(found) - both
    neither = math.comb(len(true), 2) - both - only_true - only_found
    if only_true == 0 and only_found == 0:
        return 1.0
    above_chance = 2 * (both * neither - only_true * only_found)
    scale = (both + only_true) * (only_true + neither) + (both + only_found) * (only_found + neither)
    return above_chance / scale


def _pairs(labels: Iterable[Hashable]) -> int:
    """Return how many pairs have equal labels."""
    return sum(math.comb(size, 2) for size in Counter(labels).values())


def model_error(bank: FloatArray, true_models: FloatArray) -> float:
    """Return d(theta, theta*), the largest distance of a true model (L, R) from its own found one (K, R).

    With K >= L it is the least over all ways of giving each true model a found one of its own; with K < L that to the
    nearest. Infinite if too many models are not finite.

    Source: mixed regression, Sec. IV, d(theta, theta*), there with K = L.
    """
    # It takes a fifth of a second, which the command's --help need not spend.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching
    from scipy.spatial.distance import cdist

    distances = cdist(true_models, bank)
    distances[~np.isfinite(distances)] = np.inf
    if len(bank) < len(true_models):
        return float(distances.min(axis=1).max())
    candidates = np.unique(distances[np.isfinite(distances)])

    def all_are_matched(place: int) -> bool:
        matched = maximum_bipartite_matching(csr_array(distances <= candidates[place]), perm_type="column")
        return bool((matched >= 0).all())

    place = bisect_left(range(len(candidates)), True, key=all_are_matched)
    return float(candidates[place]) if place < len(candidates) else float("inf")
