"""Groups of the clients with large folds, which clients with smaller ones join: further candidates of a discovery.

The rows of a client with small folds are noisy. A tree may put it in a wrong group, and leaving it alone then
predicts better than the right number of groups does. So beside the trees of all clients, trees of those with large
folds alone are cut, and each of the others joins the group whose centre is nearest. Where the others have a group of
their own, none of these is near, and the trees of all clients score better.
"""

import numpy as np
from scipy.cluster.hierarchy import linkage

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical
from florets.strategies.core.fold_scores import EQUAL, LINKAGES, distances, products_of
from florets.strategies.core.ward import cut

MOST_GROUPS = 50
"""Numbers of groups above it are not tried in this way, whose cost grows with them."""


def joined_scores(gram: FloatArray, large: IntArray) -> FloatArray:
    """Return the score of every number of groups as `fold_scores.scores` does, with groups from `joined`.

    Parameters
    ----------
    gram : (m, M, m, M) float64
        From `fold_scores.gram_of`.
    large : (L,) int64
        The clients with large folds, at least two and not all.

    Returns
    -------
    (2, M - 1) float64
        Minus infinity for more groups than there are such clients, or than `MOST_GROUPS`.
    """
    num_folds, num_clients = gram.shape[:2]
    others, held_out, energy = products_of(gram)
    found = np.full((len(LINKAGES), num_clients - 1), -np.inf)
    most = min(len(large), MOST_GROUPS)
    found[:, : most - 1] = 0.0
    for fold in range(num_folds):
        products = others[fold]
        for row, method in enumerate(LINKAGES):
            tree = _tree(products, large, method)
            for k in range(2, most + 1):
                labels = _labels(products, large, tree, k)
                predicted, length = _within(held_out[fold], labels, k), _within(products, labels, k)
                if min(length, energy[fold]) > EQUAL * num_clients:
                    found[row, k - 2] += predicted / np.sqrt(length * energy[fold]) / num_folds
    return found


def joined(products: FloatArray, large: IntArray, method: str, k: int) -> IntArray:
    """Return the groups of all clients (M,): a tree of those with large folds, cut at K, and the others' nearest.

    Parameters
    ----------
    products : (M, M) float64
        Inner products of the clients' centred means.
    large : (L,) int64
        See `joined_scores`; at least K.
    method
        Linkage of the tree.
    """
    return _labels(products, large, _tree(products, large, method), k)


def _tree(products: FloatArray, large: IntArray, method: str) -> FloatArray:
    tree: FloatArray = linkage(distances(products[np.ix_(large, large)]), method)
    return tree


def _labels(products: FloatArray, large: IntArray, tree: FloatArray, k: int) -> IntArray:
    labels = np.empty(len(products), dtype=np.int64)
    labels[large] = of_large = canonical(cut(tree, k))
    member = np.eye(k)[of_large]
    member /= member.sum(axis=0)
    with_centres = products[:, large] @ member  # (M, K): <a(i), c_g>
    energy = (member * with_centres[large]).sum(axis=0)
    cosine = with_centres / np.sqrt(np.where(energy > EQUAL, energy, np.inf))
    rest = np.setdiff1d(np.arange(len(products)), large)
    labels[rest] = cosine[rest].argmax(axis=1)
    return labels


def _within(products: FloatArray, labels: IntArray, k: int) -> float:
    """Return the sum over groups of (sum of products within) / (group size)."""
    member = np.eye(k)[labels]
    return float(((products @ member * member).sum(axis=0) / member.sum(axis=0)).sum())
