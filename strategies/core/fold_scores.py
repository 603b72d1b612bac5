"""Scores of every number of groups, from inner products of clients' rows on folds; see `folds` for the method."""

import numpy as np
from scipy.cluster.hierarchy import linkage

from florets.strategies.core import FloatArray, IntArray
from florets.strategies.core.cluster import canonical, cut

LINKAGES = ("ward", "average")

# Rows of unit length that differ from their mean by less energy than this do so by rounding.
EQUAL = 1e-24


def centred_rows(folds: FloatArray, classes: IntArray | None = None) -> FloatArray:
    """Return the rows (M, m, D) at unit length, minus each fold's mean over the clients of a class, as (m, M, D).

    A row of zeros has no direction and stays 0. ValueError if an entry is not finite.
    """
    rows = np.array(np.swapaxes(folds, 0, 1), dtype=np.float64)
    # By the largest entry first: squares of very large or small entries would leave the range of a float.
    largest = np.abs(rows).max(axis=2, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise ValueError("a fold's row has an entry that is not finite: leave that client out.")
    rows /= np.where(largest > 0.0, largest, 1.0)
    rows /= np.where(largest > 0.0, np.linalg.norm(rows, axis=2, keepdims=True), 1.0)
    centre(rows, classes)
    rows[(rows**2).sum(axis=2) < EQUAL] = 0.0
    return rows


def centre(rows: FloatArray, classes: IntArray | None) -> None:
    """Take each fold's mean over the clients of a class off their rows (m, M, D)."""
    for members in members_of(classes, rows.shape[1]):
        rows[:, members] -= rows[:, members].sum(axis=1, keepdims=True) / max(len(members), 1)


def members_of(classes: IntArray | None, num_clients: int) -> list[IntArray]:
    """Return the clients of each class; None: of one class."""
    if classes is None:
        return [np.arange(num_clients)]
    return [np.flatnonzero(classes == one) for one in np.unique(classes)]


def gram_of(rows: FloatArray) -> FloatArray:
    """Return the inner products (m, M, m, M) of all rows: entry ``[f, i, g, j]`` is that of x_f(i) and x_g(j)."""
    num_folds, num_clients, _ = rows.shape
    flat = rows.reshape(num_folds * num_clients, -1)
    gram: FloatArray = (flat @ flat.T).reshape(num_folds, num_clients, num_folds, num_clients)
    return gram


def permuted(gram: FloatArray, order: IntArray) -> FloatArray:
    """Return the Gram matrix (m, M, m, M) after client i took the row of client ``order[f, i]`` in each fold f."""
    num_folds, num_clients = order.shape
    index = (np.arange(num_folds)[:, None] * num_clients + order).ravel()
    flat = gram.reshape(len(index), len(index))
    # Rows first, then columns: one indexing by both takes several times as long.
    both: FloatArray = flat.take(index, axis=0).take(index, axis=1).reshape(gram.shape)
    return both


def distances(gram: FloatArray) -> FloatArray:
    """Return the distances of the vectors with these inner products (..., M, M), in SciPy's condensed order."""
    energy = np.diagonal(gram, axis1=-2, axis2=-1)
    squares = energy[..., :, None] + energy[..., None, :] - 2.0 * gram
    upper = ~np.tri(gram.shape[-1], dtype=bool)
    lengths: FloatArray = np.sqrt(np.maximum(squares[..., upper], 0.0))
    return lengths


def scores(gram: FloatArray) -> FloatArray:
    """Return the score of 2, ..., M groups for each kind of tree, (2, M - 1); 0 where no row differs from the mean.

    One tree serves all cuts: a node is a run of neighbours in the order of its leaves, so that sums over pairs of its
    members are four entries of a two-dimensional running sum.
    """
    num_folds, num_clients = gram.shape[:2]
    others, held_out, energy = products_of(gram)
    cosine = np.zeros((len(LINKAGES), num_clients - 1))
    for fold, pairs in enumerate(distances(others)):
        products = np.stack([held_out[fold], others[fold]])
        for row, method in enumerate(LINKAGES):
            predicted, length = _along(linkage(pairs, method), products)
            valid = (length > EQUAL * num_clients) & (energy[fold] > EQUAL * num_clients)
            cosine[row] += np.where(valid, predicted / np.sqrt(np.where(valid, length * energy[fold], 1.0)), 0.0)
    mean: FloatArray = cosine / num_folds
    return mean


def products_of(gram: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return, with each fold f left out in turn, <a_f(i), a_f(j)> (m, M, M), <a_f(i), x_f(j)> and |x_f|^2 (m,)."""
    num_folds = len(gram)
    every = np.arange(num_folds)
    own = gram[every, :, every]  # [f, i, j]: <x_f(i), x_f(j)>
    cross = gram.sum(axis=0).swapaxes(0, 1)  # [f, i, j]: the sum over all folds g of <x_g(i), x_f(j)>
    others = (cross.sum(axis=0) - cross - cross.swapaxes(1, 2) + own) / (num_folds - 1) ** 2
    return others, (cross - own) / (num_folds - 1), np.trace(own, axis1=1, axis2=2)


def _along(tree: FloatArray, products: FloatArray) -> FloatArray:
    """Return, for the cuts into 2, ..., M groups, the sum over groups of (sum of products within) / (group size)."""
    num_matrices, num_clients, _ = products.shape
    begin, sizes = _spans(tree)
    order = np.argsort(begin[:num_clients])
    running = np.zeros((num_matrices, num_clients + 1, num_clients + 1))
    np.cumsum(products.take(order, axis=1).take(order, axis=2).cumsum(axis=1), axis=2, out=running[:, 1:, 1:])
    end = begin + sizes
    within = running[:, end, end] - running[:, begin, end] - running[:, end, begin] + running[:, begin, begin]
    share = within / sizes
    children = tree[:-1, :2].astype(np.int64)
    gain = share[:, num_clients:-1] - share[:, children[:, 0]] - share[:, children[:, 1]]
    # From everybody alone (K = M) up the tree; the last merge, into one group, is left out.
    alone = share[:, :num_clients].sum(axis=1, keepdims=True)
    return np.concatenate([alone, alone + gain.cumsum(axis=1)], axis=1)[:, ::-1]


def _spans(tree: FloatArray) -> tuple[IntArray, IntArray]:
    """Return where each node's leaves begin in an order that keeps them together, and how many they are.

    SciPy's own `leaves_list` checks the tree for longer than all the rest of a score takes.
    """
    num_clients = len(tree) + 1
    sizes = [1] * num_clients + tree[:, 3].astype(np.int64).tolist()
    begin = [0] * len(sizes)
    children = tree[:, :2].astype(np.int64).tolist()
    for node in range(len(sizes) - 1, num_clients - 1, -1):
        left, right = children[node - num_clients]
        begin[left] = begin[node]
        begin[right] = begin[node] + sizes[left]
    return np.array(begin), np.array(sizes)


MOST_GROUPS = 50
"""Numbers of groups above it are not tried in this way, whose cost grows with them."""


def joined_scores(gram: FloatArray, large: IntArray) -> FloatArray:
    """Return scores (2, M - 1) as `scores` does, of `joined` groups; minus infinity for too many groups."""
    num_folds, num_clients = gram.shape[:2]
    others, held_out, energy = products_of(gram)
    found = np.full((len(LINKAGES), num_clients - 1), -np.inf)
    most = min(len(large), MOST_GROUPS)
    found[:, : most - 1] = 0.0
    for fold in range(num_folds):
        products = others[fold]
        for row, method in enumerate(LINKAGES):
            tree = linkage(distances(products[np.ix_(large, large)]), method)
            for k in range(2, most + 1):
                labels = joined(products, large, tree, k)
                predicted, length = _within(held_out[fold], labels, k), _within(products, labels, k)
                if min(length, energy[fold]) > EQUAL * num_clients:
                    found[row, k - 2] += predicted / np.sqrt(length * energy[fold]) / num_folds
    return found


def joined(products: FloatArray, large: IntArray, tree: FloatArray, k: int) -> IntArray:
    """Return the groups (M,): the `large` clients' tree cut at K, and the others' nearest, by products (M, M)."""
    labels = np.empty(len(products), dtype=np.int64)
    labels[large] = of_large = canonical(cut(tree, k))
    if len(rest := np.setdiff1d(np.arange(len(products)), large)):
        member = np.eye(k)[of_large]
        member /= member.sum(axis=0)
        with_centres = products[:, large] @ member  # (M, K): <a(i), c_g>
        energy = (member * with_centres[large]).sum(axis=0)
        cosine = with_centres / np.sqrt(np.where(energy > EQUAL, energy, np.inf))
        labels[rest] = cosine[rest].argmax(axis=1)
    return labels


def _within(products: FloatArray, labels: IntArray, k: int) -> float:
    """Return the sum over groups of (sum of products within) / (group size)."""
    member = np.eye(k)[labels]
    return float(((products @ member * member).sum(axis=0) / member.sum(axis=0)).sum())
